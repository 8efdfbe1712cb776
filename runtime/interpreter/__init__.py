"""Reference interpreter of programs, its static checks, and lint findings."""
