//! Barriers. Cn: the defects of Curator in `docs/CURATOR.md`.
