"""Reference interpreter of programs: what happens before what, static checks, runs, and findings of linters."""
