"""The published experiments done again, and the measurements of speed: programs that use the library, no part of it."""
