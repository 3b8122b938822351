"""Behaviour, through public seams."""
