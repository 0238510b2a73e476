//! What was seen of the proven bound of a hold.

/// The proven bound of a hold or a leadership, as it was seen last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It has not begun.
    #[default]
    None,
    /// It lies ahead.
    Ahead,
    /// It has passed, for ever.
    Passed,
}

impl Proof {
    /// Records where it lies now. Returns whether it had passed and lies ahead again.
    pub(crate) fn is_revived(&mut self, is_ahead: bool) -> bool {
        let is_revived = *self == Self::Passed && is_ahead;
        *self = match *self {
            Self::None if !is_ahead => Self::None,
            _ if is_ahead => Self::Ahead,
            _ => Self::Passed,
        };
        is_revived
    }
}
