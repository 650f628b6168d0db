"""Tests that take `device` run on each that is here."""

from devices import on_each

pytest_generate_tests = on_each
