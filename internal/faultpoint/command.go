//go:build faults

package faultpoint

import "strings"

// is says whether the n-th occurrence of point is the one meant.
func (f Fault) is(point string, n int) bool { return n > 0 && f.Point == point && f.N == n }

// containers are commands whose second word says what they do.
var containers = map[string]bool{
	"ACL": true, "CLIENT": true, "CLUSTER": true, "COMMAND": true, "CONFIG": true, "FUNCTION": true,
	"MEMORY": true, "SCRIPT": true, "XGROUP": true, "XINFO": true,
}

// pointOf names the point of a command. scripts are names by digest; a script without a name keeps
// its digest, so that it is found to be unknown.
func pointOf(args []any, scripts map[string]string) string {
	name := strings.ToUpper(word(args, 0))
	switch {
	case name == "EVALSHA" || name == "EVALSHA_RO":
		return scriptName(name, word(args, 1), scripts)
	case name == "EVAL" || name == "EVAL_RO":
		return scriptName(name, Digest(word(args, 1)), scripts)
	case containers[name] && len(args) > 1:
		return name + " " + strings.ToUpper(word(args, 1))
	}
	return name
}

func scriptName(command, digest string, scripts map[string]string) string {
	if known, ok := scripts[digest]; ok {
		return known
	}
	return command + " " + digest
}

func word(args []any, i int) string {
	if i >= len(args) {
		return ""
	}
	text, _ := args[i].(string)
	return text
}
