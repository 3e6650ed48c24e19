//! What is left by a process that dies, and opened again.
