"""Writes `braces.json`: what `braceexpand` 0.1.7, which webdataset 1.0.2 uses, makes of patterns."""

import json
import random
from pathlib import Path

from braceexpand import UnbalancedBracesError, braceexpand

PATTERNS = [
    '', 'a', 'a.tar', 'train-{000000..000146}.tar', '{a,b}-{00..03}.tar', '{01..3}', '{2..001}', '{1..10..3}',
    '{10..1..3}', '{-1..1}', '{-01..1}', '{0..-0}', '{1..1}', '{a..e}', '{A..c..2}', '{e..a}', '{Z..A}', '{a..A..7}',
    '{A..A}', '{a..a..0}', '{1..5..0}', '{1..9..-2}', '{1..9..--2}', '{a,b{1,2}}', '{,x}', '{x,}', '{,}', '{0..2}{a,b}',
    '{}', '{a}', '{1..a}', '${X}', '{{a,b}}', '{{1..2}}', '{a{b,c}d}', '{a,{b,{c,d}}e}f', '\\{a,b\\}', '{a\\,b,c}',
    '{a,b', 'a}b', 'a}{b', '}{{a,b}', '}{', '{{a}', '{a}}', 'a\\', '\\\\{a,b}', '{é,ü}-{1..2}', '{a b,c}', '{1...3}',
    '{1..2..}', '{1..2..3..4}', '{..}', '{1..}', '{..2}', '{09..11}', '{9..011}', '{-5..-007}', '{1..3}..{4..5}',
    '{a,b},{c}', '{,,}', '{a..zz}', '{0..0}', '{00..0}', '{+1..3}', '{1.5..3}', 's3://b/{x,y}/{0..1}.tar', '\\a{b,\\c}',
]


def main() -> None:
    draw = random.Random(7)
    patterns = list(PATTERNS)
    for _ in range(400):
        tokens = ['{', '}', ',', '..', '1', '03', '-2', 'a', 'Z', '\\', 'x', '{1..3}', '{a,b}']
        patterns.append(''.join(draw.choice(tokens) for _ in range(draw.randrange(2, 12))))
    cases = {}
    for pattern in patterns:
        try:
            cases[pattern] = list(braceexpand(pattern))
        except UnbalancedBracesError:
            cases[pattern] = None
    text = json.dumps(cases, indent=0, ensure_ascii=True)
    Path(__file__).with_name('braces.json').write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
    main()
