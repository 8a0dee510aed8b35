package shardscript

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// names lists the scripts. Those that are false stand alone, without the prelude: they run
// with every batch of entries, where its set-up would show.
var names = map[Name]bool{
	Prepare: true, Provision: true, Seal: true, Evidence: true, Decide: true, Look: true, Open: true,
	Release: true, Undo: true, RetireOne: true, Hold: true, MkGroup: true, Survey: true, Purge: true, Probe: true, Recheck: true,
	RmGroup: true, Retain: true,
	Resolve: true, Bring: true, Takeover: true,
	Append: false, CheckAck: false, DeleteConsumer: false,
}

var sources = func() map[Name]string {
	read := func(file string) string {
		b, err := files.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // a mistake in this package
		}
		return string(b)
	}
	prelude := read("prelude")
	all := make(map[Name]string, len(names))
	for name, common := range names {
		// Ending a pause must work on a full Redis, an append must not. None says no-writes: a
		// demoted primary would then answer evidence from old data.
		text := "#!lua flags=allow-oom\n"
		if name == Append {
			text = "#!lua\n"
		}
		if common {
			text += prelude
		}
		all[name] = text + read(strings.ToLower(string(name)))
	}
	return all
}()

// Source is the complete Lua text of a script, to be run by EVALSHA with the keys Keys and the
// arguments that the type or function for the script makes. It panics for an unknown name.
func Source(name Name) string {
	text, ok := sources[name]
	if !ok {
		panic(fmt.Sprintf("shardscript: no script %q", name))
	}
	return text
}

// Names lists all scripts, in no order.
func Names() []Name {
	list := make([]Name, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	return list
}
