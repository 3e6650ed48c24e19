//! Defects that others shipped, each with a test that fails if the care against it is taken out.
