//! `isotherm generate`: what `make install` brings besides the program.

use anyhow::Context;
use clap::builder::Resettable::Reset;
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
    // So that there is a flag for it; what it says is not looked at.
    without_hidden(cli).version("")
}

fn without_hidden(command: &clap::Command) -> clap::Command {
    // Names live as long as the program, which ends after this.
    let name: &'static str = String::leak(command.get_name().to_owned());
    let mut shown = clap::Command::new(name)
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).map(|arg| alone(command, arg)))
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).map(without_hidden));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    // Where there is more to say, -h says so.
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    shown.visible_aliases(command.get_visible_aliases().map(|alias| &*String::leak(alias.to_owned())))
}

/// An argument of `command` that refers to no hidden one, nor to groups.
fn alone(command: &clap::Command, arg: &clap::Arg) -> clap::Arg {
    let others = command.get_arg_conflicts_with(arg).into_iter().filter(|other| !other.is_hide_set());
    let others: Vec<clap::Id> = others.map(|other| other.get_id().clone()).collect();
    let arg = arg.clone().requires(Reset).required_unless_present(Reset).overrides_with(Reset);
    arg.conflicts_with(Reset).conflicts_with_all(others)
}

fn cannot_write(folder: &Path) -> String {
    format!("cannot write to {}", folder.display())
}
