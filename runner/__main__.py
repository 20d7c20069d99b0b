"""`python -I -m runner`: the same as the console script, where there is none."""

from runner.entry import main

if __name__ == "__main__":
    main()
