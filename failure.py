"""What the commands raise when the user asked for something that cannot be done, and the console that they print to."""

import rich.console


class Failure(Exception):
    """What the user asked for cannot be done; the message says why."""


class Console(rich.console.Console):
    """Rich's, which raises BrokenPipeError where the reader has gone, as `print` does, and does not end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
