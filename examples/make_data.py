"""Writes the events of `web_log.yaml` and `retail.yaml`: made-up ones, as servers and shops write.

    python examples/make_data.py

The same files come out each time. Weights make some pages, hosts and items far more frequent than
others; a few answers have no size, some invoices are cancelled, and some customers are not known.
"""

import csv
import gzip
import io
import random
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

DATA = Path(__file__).parent / "data"
ENDINGS = {200: 88, 304: 7, 302: 2, 404: 2, 500: 1}
KINDS = {"html": 50, "gif": 30, "jpg": 15, "zip": 5}
COUNTRIES = {"United Kingdom": 90, "Germany": 4, "France": 3, "Spain": 1, "Norway": 2}

Rows = list[list[object]]


def skewed(dice: random.Random, count: int) -> int:
    """A number below `count`; small ones are far more frequent."""
    return min(int(dice.paretovariate(1.1)) - 1, count - 1)


def requests(dice: random.Random, count: int = 3000) -> Rows:
    """Six hours of a web server: what it was asked for, by whom, and how it answered."""
    pages = [f"/{dice.choice('abc')}/{n}.{weighted(dice, KINDS)}" for n in range(60)]
    pages[:2] = ["/", "/index.html"]
    begin = datetime(2026, 3, 2, 6, tzinfo=UTC)
    rows: Rows = []
    for second in sorted(dice.triangular(0, 6 * 3600, 4 * 3600) for _ in range(count)):
        at = begin + timedelta(seconds=int(second))
        ending = weighted(dice, ENDINGS)
        page = f"/gone/{dice.randrange(5)}.html" if ending == 404 else pages[skewed(dice, 60)]
        size = int(dice.lognormvariate(8.5, 1.2)) if ending == 200 else 0
        rows.append(
            [
                at.strftime("%d/%b/%Y:%H:%M:%S +0000"),
                f"host-{skewed(dice, 250)}.example.net",
                "POST" if dice.random() < 0.03 else "GET",
                page,
                ending,
                size,
            ]
        )
    return rows


def invoices(dice: random.Random, count: int = 700) -> Rows:
    """Two weeks of a shop: the lines of its invoices, some of which take goods back."""
    prices = [round(dice.uniform(0.4, 12), 2) for _ in range(200)]
    begin = datetime(2026, 3, 2, 8)
    rows: Rows = []
    for number in range(count):
        at = begin + timedelta(days=number * 14 // count, minutes=dice.randrange(600))
        back = dice.random() < 0.04
        customer = "" if dice.random() < 0.15 else 10_000 + skewed(dice, 300)
        country = weighted(dice, COUNTRIES)
        for _ in range(dice.randint(1, 7)):
            item = skewed(dice, 200)
            pieces = dice.choice([1, 1, 2, 3, 6, 12, 24])
            rows.append(
                [
                    f"{at.month}/{at.day}/{at.year} {at.hour}:{at.minute:02d}",
                    f"{'C' if back else ''}{500_000 + number}",
                    f"{20_000 + item}{'AB'[item % 2]}",
                    -pieces if back else pieces,
                    prices[item],
                    customer,
                    country,
                ]
            )
    return rows


def weighted(dice: random.Random, weights: dict[str, int] | dict[int, int]) -> str | int:
    """One of the names, by their weights."""
    return dice.choices(list(weights), cum_weights=list(accumulate(weights.values())))[0]


def write(name: str, columns: str, rows: Rows) -> None:
    """A CSV file with a header, compressed; the time of writing is not in it."""
    text = io.StringIO()
    made = csv.writer(text, lineterminator="\n")
    made.writerow(columns.split())
    made.writerows(rows)
    beside = DATA / f".{name}"
    beside.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    beside.rename(DATA / name)
    print(f"{DATA / name}: {len(rows):,} rows")


if __name__ == "__main__":
    web, shop = random.Random(1), random.Random(2)
    write("requests.csv.gz", "stamp host method page response bytes", requests(web))
    write(
        "invoices.csv.gz",
        "invoiced invoice item quantity price customer country",
        invoices(shop),
    )
