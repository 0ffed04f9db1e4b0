"""Write the Unicode character database that comes with this Python as a CSV table: one row a named character.

    python demo_table.py OUT.csv

A real table that every machine with Python has: about 140,000 rows of text, integers and floats; `numeric` is empty
for characters that are not numbers.
"""

import csv
import sys
import unicodedata


def main() -> None:
    rows = 0
    with open(sys.argv[1], "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["codepoint", "name", "category", "bidirectional", "combining", "numeric"])
        for codepoint in range(sys.maxunicode + 1):
            character = chr(codepoint)
            name = unicodedata.name(character, None)
            if name is None:
                continue
            numeric = unicodedata.numeric(character, None)
            table.writerow(
                [
                    codepoint,
                    name,
                    unicodedata.category(character),
                    unicodedata.bidirectional(character),
                    unicodedata.combining(character),
                    "" if numeric is None else float(numeric),
                ]
            )
            rows += 1
    print(f"{rows:,} rows of the Unicode {unicodedata.unidata_version} database")


if __name__ == "__main__":
    main()
