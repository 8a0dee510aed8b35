package faultpoint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/faultpoint"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

const (
	module  = "github.com/redisstream/terraform-provider-redisstream"
	store   = "../../server/redisstore"
	goRedis = "github.com/redis/go-redis/v9"
)

func TestPoints(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range faultpoint.Points {
		if seen[p.Name] {
			t.Errorf("%s is in the list twice", p.Name)
		}
		seen[p.Name] = true
		if p.Work == "" || p.Does == "" || p.When == "" {
			t.Errorf("%s: %+v says too little", p.Name, p)
		}
	}
}

// TestEveryScriptHasAPoint: those beside the shards that the coordinator runs, and each file of the
// store. Scripts of clients have none: a coordinator that sent one would be found by its name.
func TestEveryScriptHasAPoint(t *testing.T) {
	t.Parallel()
	clients := []shardscript.Name{
		shardscript.Append, shardscript.Resolve, shardscript.Bring, shardscript.Takeover, shardscript.CheckAck, shardscript.DeleteConsumer,
	}
	names := redisstore.ScriptNames()
	for _, name := range shardscript.Names() {
		_, ok := faultpoint.Lookup(string(name))
		if ofClients := slices.Contains(clients, name); ok == ofClients {
			t.Errorf("script %s: it has a point: %v, it is of clients: %v", name, ok, ofClients)
		}
		if got := names[faultpoint.Digest(shardscript.Source(name))]; got != string(name) {
			t.Errorf("the digest of script %s is that of %q", name, got)
		}
	}
	known := slices.Collect(maps.Values(names))
	files, err := filepath.Glob(filepath.Join(store, "lua", "*.lua"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts of the store: %v", err)
	}
	for _, file := range files {
		name := strings.ToUpper(strings.TrimSuffix(filepath.Base(file), ".lua"))
		if name == "HEAD" {
			continue // in front of all others
		}
		if _, ok := faultpoint.Lookup(name); !ok || !slices.Contains(known, name) {
			t.Errorf("%s has no point %s, or ScriptNames does not have it", file, name)
		}
	}
	for _, name := range known {
		_, ok := faultpoint.Lookup(name)
		if !ok && !slices.Contains(clients, shardscript.Name(name)) {
			t.Errorf("script %s has no point", name)
		}
	}
}

// commands are the methods of go-redis that send something, with their points. Those without one
// send nothing by themselves, or what stands in their arguments.
var commands = map[string][]string{
	"ConfigGet": {"CONFIG GET"}, "Del": {"DEL"}, "Get": {"GET"}, "HGetAll": {"HGETALL"}, "Info": {"INFO"}, "PExpire": {"PEXPIRE"}, "Ping": {"PING"},
	"SAdd": {"SADD"}, "SMembers": {"SMEMBERS"}, "SRem": {"SREM"}, "ScriptLoad": {"SCRIPT LOAD"}, "Set": {"SET"}, "Time": {"TIME"},
	"Subscribe": {"SUBSCRIBE"}, "SSubscribe": {"SUBSCRIBE"}, "Unsubscribe": {"UNSUBSCRIBE"}, "SUnsubscribe": {"UNSUBSCRIBE"},
	"XRangeN": {"XRANGE"}, "XRevRangeN": {"XREVRANGE"}, "ZRevRangeByScore": {"ZREVRANGEBYSCORE"},

	// Scripts: ScriptNames names them.
	"Run": nil, "EvalSha": nil, "Eval": nil,
	// Pipelines: their commands are seen one by one.
	"Pipelined": nil, "Exec": nil,
	// The library's own view of a cluster, and what arrives by itself.
	"ForEachMaster": nil, "MasterForKey": nil, "ReloadState": nil, "ReceiveTimeout": nil,
}

// TestEveryCallOfTheStoreHasAPoint finds, by type, every call of a go-redis method that takes a
// context, and of Pipeliner.Do by its first word.
func TestEveryCallOfTheStoreHasAPoint(t *testing.T) {
	t.Parallel()
	fset, files, info := checked(t)
	unused := maps.Clone(commands)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fn := goRedisMethod(info, call)
			if fn == nil {
				return true
			}
			at := fset.Position(call.Pos())
			points, known := commands[fn.Name()]
			if fn.Name() == "Do" {
				points, known = doneBy(info, call)
			}
			if !known {
				t.Errorf("%s: %s sends a command that has no fault point: enter it in this test and in Points", at, fn.Name())
			}
			for _, p := range points {
				if _, ok := faultpoint.Lookup(p); !ok {
					t.Errorf("%s: %s has the fault point %s, which is not in Points", at, fn.Name(), p)
				}
			}
			delete(unused, fn.Name())
			return true
		})
	}
	for name := range unused {
		t.Errorf("the store does not call %s any more", name)
	}
}

// doneBy is the point of Do(ctx, "WORD", …).
func doneBy(info *types.Info, call *ast.CallExpr) ([]string, bool) {
	if len(call.Args) < 2 {
		return nil, false
	}
	v := info.Types[call.Args[1]].Value
	if v == nil {
		return nil, false // not written out: it cannot be known here
	}
	return []string{strings.Trim(v.String(), `"`)}, true
}

// goRedisMethod is the method of go-redis that call calls with a context, nil for any other call.
func goRedisMethod(info *types.Info, call *ast.CallExpr) *types.Func {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	fn, ok := info.Uses[sel.Sel].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Pkg().Path() != goRedis {
		return nil
	}
	sig, ok := fn.Type().(*types.Signature)
	if !ok || sig.Recv() == nil || sig.Params().Len() == 0 || sig.Params().At(0).Type().String() != "context.Context" {
		return nil
	}
	return fn
}

// checked parses the store and resolves its types from what the compiler exported.
func checked(t *testing.T) (*token.FileSet, []*ast.File, *types.Info) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles", store)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	var names []string
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.ImportPath == module+"/server/redisstore" {
			names = p.GoFiles
		}
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, filepath.Join(store, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})}
	if _, err := conf.Check(module+"/server/redisstore", fset, files, info); err != nil {
		t.Fatalf("types of the store: %v", err)
	}
	return fset, files, info
}

// TestOnlyTheStoreSpeaksToRedis: in the coordinator, the client is made in package server and used
// by the store alone; dev looks after its own private server.
func TestOnlyTheStoreSpeaksToRedis(t *testing.T) {
	t.Parallel()
	allowed := []string{
		module + "/server", module + "/server/redisstore", module + "/cmd/redis-stream-coordinator", module + "/internal/faultpoint",
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{.ImportPath}}: {{join .Imports \" \"}}", module+"/cmd/redis-stream-coordinator").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if strings.HasPrefix(path, module) && slices.Contains(strings.Fields(imports), goRedis) && !slices.Contains(allowed, path) {
			t.Errorf("%s speaks to Redis by itself: its commands have no fault points", path)
		}
	}
}

func TestParseFault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"SEAL#1", "SCRIPT LOAD#12/after", "COMMIT#3/stop"} {
		f, err := faultpoint.ParseFault(text)
		if err != nil || f.String() != text {
			t.Errorf("ParseFault(%q) = %v, %v", text, f, err)
		}
	}
	for _, text := range []string{"", "SEAL", "SEAL#0", "SEAL#x", "SEAL#01", "SEAL#1/", "SEAL#1/twice", "NOSUCH#1", "#1"} {
		if f, err := faultpoint.ParseFault(text); err == nil {
			t.Errorf("ParseFault(%q) = %v, want an error", text, f)
		}
	}
}
