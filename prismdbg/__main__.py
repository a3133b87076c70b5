"""`python -m prismdbg`: the command line of that Python's prismdbg, whatever PATH leads to."""

from prismdbg.cli.main import main

if __name__ == "__main__":
    main()
