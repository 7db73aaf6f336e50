//! What keys ask for.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use isotherm_view::tui::Command;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Something of the picture, or to leave.
    Command(Command),
    /// Back to the shell, until it lets us go on.
    Suspend,
}

/// `None`: nothing. The terminal is raw, so that what it would do for Ctrl-Z is left to us.
pub(super) fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return match event.code {
            KeyCode::Char('c' | 'd') => Some(Key::Command(Command::Quit)),
            KeyCode::Char('z') => Some(Key::Suspend),
            _ => None,
        };
    }
    Some(Key::Command(match event.code {
        KeyCode::Char('q' | 'Q') => Command::Quit,
        KeyCode::Char('p' | ' ') => Command::Pause,
        KeyCode::Char('s') => Command::Sort,
        KeyCode::Up | KeyCode::Char('k') => Command::Up,
        KeyCode::Down | KeyCode::Char('j') => Command::Down,
        KeyCode::Tab | KeyCode::Char('t') => Command::NextTarget,
        KeyCode::BackTab => Command::PreviousTarget,
        KeyCode::Enter | KeyCode::Char('z') => Command::Zoom,
        KeyCode::Esc => Command::Back,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Command::Help,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let of = |code, modifiers| key(KeyEvent::new(code, modifiers));
        let quit = Some(Key::Command(Command::Quit));
        assert_eq!(of(KeyCode::Char('q'), KeyModifiers::NONE), quit);
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), quit);
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(of(KeyCode::Down, KeyModifiers::NONE), Some(Key::Command(Command::Down)));
        let mut released = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(key(released), None);
    }

    #[test]
    fn a_letter_with_control_is_another_key() {
        let control = |c| key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!(control('z'), Some(Key::Suspend));
        assert_eq!(['s', 'p', 'k', 'j', 't', 'h'].map(control), [None; 6]);
    }
}
