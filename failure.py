"""What the commands raise when the user asked for something that cannot be done."""


class Failure(Exception):
    """What the user asked for cannot be done; the message says why."""
