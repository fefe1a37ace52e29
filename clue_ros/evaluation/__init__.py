"""How good it is: metrics, one protocol for every data set, and one module a data set."""
