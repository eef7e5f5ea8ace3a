"""`python -m worldline.cli`."""

from worldline.cli.main import main

raise SystemExit(main())
