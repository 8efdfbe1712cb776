"""Reference interpreter of programs: event order, static checks, runs, and findings of linters."""
