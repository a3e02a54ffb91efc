"""`python -m expunge` is the command line."""

from expunge.cli import main

if __name__ == "__main__":
    main()
