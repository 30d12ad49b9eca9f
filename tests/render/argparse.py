"""Reads command lines with Python's own argparse, for comparison: a JSON document in, one out.

in:  {"options": [[spelling, ...], ...], "underscores": bool, "lines": [[word, ...], ...]}
out: for each line the options that argparse finds, as [first spelling, value or null], or null where it refuses the line
"""

import argparse
import json
import sys


class Refused(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(message)


class Note(argparse.Action):
    """Appends what was found to one list, in order."""

    def __call__(self, parser, namespace, values, option_string=None):
        namespace.found.append([self.option_strings[0], values])


def read(given):
    parser = Parser(add_help=False)
    for spellings in given["options"]:
        # Takes a value where one follows, which a switch does not: the difference decides nothing.
        parser.add_argument(*spellings, action=Note, nargs="?", dest="ignored")
    answers = []
    for line in given["lines"]:
        if given["underscores"]:
            line = [dashed(word) for word in line]
        try:
            namespace, _ = parser.parse_known_args(line, argparse.Namespace(found=[]))
            answers.append(namespace.found)
        except Refused:
            answers.append(None)
    return answers


def dashed(word):
    """What vLLM's parser does before argparse sees a word."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return "--" + name[2:].replace("_", "-") + equals + value


json.dump(read(json.load(sys.stdin)), sys.stdout)
