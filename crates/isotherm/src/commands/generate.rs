//! `isotherm generate`: what `make install` brings besides the program.

use anyhow::Context;
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// Where each shell looks for completions, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Write manual pages and shell completions, made from the flags, below a folder such as /usr/local/share.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder
    share: PathBuf,
}

/// Runs the command; `cli` is all of the command line.
pub fn run(args: Args, mut cli: clap::Command) -> anyhow::Result<()> {
    let folder = |name: &str| {
        let folder = args.share.join(name);
        std::fs::create_dir_all(&folder).with_context(|| cannot_write(&folder))?;
        anyhow::Ok(folder)
    };
    let pages = folder("man/man1")?;
    clap_mangen::generate_to(cli.clone(), &pages).with_context(|| cannot_write(&pages))?;
    for (shell, name) in SHELLS {
        let folder = folder(name)?;
        clap_complete::generate_to(shell, &mut cli, "isotherm", &folder).with_context(|| cannot_write(&folder))?;
    }
    Ok(())
}

fn cannot_write(folder: &Path) -> String {
    format!("cannot write to {}", folder.display())
}
