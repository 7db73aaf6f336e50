//! The terminal: taken, lent to the shell while that wants it, given back, or gone.

use crossterm::event::{self, Event, KeyEvent};
use crossterm::execute;
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use isotherm_linux::ready::{self, Interest};
use isotherm_linux::screen_signals::{ScreenSignal, ScreenSignals};
use ratatui::backend::CrosstermBackend;
use ratatui::{DefaultTerminal, Frame, Terminal};
use std::io::{self, stdin, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

/// Whether the terminal is gone: its window was closed, or the connection to it has ended.
pub(super) fn is_gone() -> bool {
    ready::is_hung_up(stdin().as_fd()).unwrap_or(true)
}

/// Makes the terminal usable without writing to it, for when a write does not return.
pub(super) fn calm() {
    // If it is gone, there is nothing to do.
    let _ = disable_raw_mode();
}

/// The terminal while the picture has all of it.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    signals: ScreenSignals,
}

/// What happened at the terminal.
pub(super) enum Input {
    Key(KeyEvent),
    /// It has another size.
    Resized,
}

impl Screen {
    /// Takes the terminal; a panic gives it back, too.
    pub(super) fn take() -> io::Result<Self> {
        let signals = ScreenSignals::catch()?;
        Ok(Self { terminal: ratatui::try_init()?, signals })
    }

    /// Gives it back.
    pub(super) fn leave(mut self) -> io::Result<()> {
        self.lend()
    }

    fn lend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()
    }

    /// Does what signals have asked for; whether everything must be drawn again.
    pub(super) fn obey(&mut self) -> io::Result<bool> {
        let mut again = false;
        while let Some(signal) = self.signals.take() {
            self.lend()?;
            if signal != ScreenSignal::Continue {
                self.signals.take_effect(signal)?;
            }
            enable_raw_mode()?;
            execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
            // The old one would draw what has changed since its last picture only, and asked to clear itself it waits for
            // the terminal to tell where the cursor is.
            self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
            again = true;
        }
        Ok(again)
    }

    /// What happened since it was asked for last, if anything did. Not waited for here: crossterm never returns from a wait
    /// in which the terminal goes.
    pub(super) fn input(&self) -> io::Result<Option<Input>> {
        while !is_gone() && event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) => return Ok(Some(Input::Key(key))),
                Event::Resize(..) => return Ok(Some(Input::Resized)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Waits until there may be input, or `limit` has passed.
    pub(super) fn wait(&self, limit: Duration) -> io::Result<()> {
        ready::wait(&[(stdin().as_fd(), Interest::Read)], Some(limit)).map(drop)
    }

    /// Width and height in characters.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }
}
