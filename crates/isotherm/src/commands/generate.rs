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
pub fn run(args: Args, cli: clap::Command) -> anyhow::Result<()> {
    let folder = |name: &str| {
        let folder = args.share.join(name);
        std::fs::create_dir_all(&folder).with_context(|| cannot_write(&folder))?;
        anyhow::Ok(folder)
    };
    let pages = folder("man/man1")?;
    clap_mangen::generate_to(cli.clone(), &pages).with_context(|| cannot_write(&pages))?;
    let mut cli = offered(&cli);
    for (shell, name) in SHELLS {
        let folder = folder(name)?;
        clap_complete::generate_to(shell, &mut cli, "isotherm", &folder).with_context(|| cannot_write(&folder))?;
    }
    Ok(())
}

/// What completions offer: not what is hidden, which clap hides from help and manual pages alone.
fn offered(cli: &clap::Command) -> clap::Command {
    clap::Command::new("isotherm")
        // So that there is a flag for it; what it says is not looked at.
        .version("")
        .args(cli.get_arguments().cloned())
        .disable_help_subcommand(cli.is_disable_help_subcommand_set())
        .subcommands(cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

fn cannot_write(folder: &Path) -> String {
    format!("cannot write to {}", folder.display())
}
