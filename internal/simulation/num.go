package simulation

import "strconv"

func num(n int64) string { return strconv.FormatInt(n, 10) }
