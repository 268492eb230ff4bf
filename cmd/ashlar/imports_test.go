package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ashlar-s3/ashlar"

// layers says what the packages below each folder may import of this module, besides others below the same folder. The
// longest folder counts. Imports run one way:
//
//	cmd/ashlar ─► s3api ─► gateway ─► blockstore     blockstore, origin and cluster import no sibling
//	     │                    └─────► origin
//	     └──────► client ─► cluster
//	                  └───► origin/s3origin ─► origin
//
// What is not a folder here, such as blockstore/memory, is an implementation that cmd/ashlar alone puts in its place. But
// client is made of origin/s3origin: a node is an S3 endpoint.
var layers = map[string][]string{
	"cmd/ashlar": {"s3api", "s3api/sigv4", "gateway", "blockstore/...", "origin/...", "cluster", "client",
		"internal/..."},
	"s3api":             {"gateway", "origin", "s3api/sigv4", "s3api/awschunked"},
	"s3api/sigv4":       {},
	"s3api/awschunked":  {},
	"gateway":           {"blockstore", "origin", "internal/hedge"},
	"blockstore":        {},
	"origin":            {},
	"origin/origintest": {"origin", "internal/latencies"},
	"cluster":           {},
	"client":            {"cluster", "origin", "origin/s3origin", "internal/hedge"},
	"internal":          {"..."},
}

// withoutHTTP are the packages that know of no HTTP.
var withoutHTTP = []string{"gateway", "blockstore", "blockstore/memory", "blockstore/disk", "origin", "cluster"}

// TestImportDirection reads the imports of every package of the module. Tests may import what they like.
func TestImportDirection(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	imports := make(map[string]map[string]bool) // package, without the module -> what it imports
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(file, "go.mod"))
			if file != root && (err == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir // other modules among them
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		// All files, whatever their build constraints.
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		if imports[pkg] == nil {
			imports[pkg] = make(map[string]bool)
		}
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[pkg][name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range []string{"cmd/ashlar", "s3api", "gateway", "blockstore", "origin", "cluster", "client"} {
		if imports[pkg] == nil {
			t.Errorf("package %s was not found", pkg)
		}
	}
	for pkg, names := range imports {
		if problem := wrongImports(pkg, names); problem != "" {
			t.Error(problem)
		}
	}
}

// wrongImports says what is wrong with the imports of a package, "" when nothing is.
func wrongImports(pkg string, imports map[string]bool) string {
	layer := pkg
	for layers[layer] == nil {
		if layer = path.Dir(layer); layer == "." {
			return "package " + pkg + " is in no layer; say where it belongs"
		}
	}
	for name := range imports {
		if name == "net/http" && slices.Contains(withoutHTTP, pkg) {
			return "package " + pkg + " imports net/http"
		}
		dep, ours := strings.CutPrefix(name, module+"/")
		if !ours || below(dep, layer) && layer != "s3api" {
			continue
		}
		if !slices.ContainsFunc(layers[layer], func(allowed string) bool {
			folder, all := strings.CutSuffix(allowed, "...")
			return dep == allowed || all && below(dep, strings.TrimSuffix(folder, "/"))
		}) {
			return "package " + pkg + " imports " + dep + ", which is not below it"
		}
		if strings.HasSuffix(dep, "test") && !strings.HasSuffix(pkg, "test") && layer != "internal" {
			return "package " + pkg + " imports " + dep + ", which is for tests"
		}
	}
	return ""
}

// below says whether a package is in a folder or one below it. Everything is below "".
func below(pkg, folder string) bool {
	return folder == "" || pkg == folder || strings.HasPrefix(pkg, folder+"/")
}

// TestWrongImportsAreFound keeps TestImportDirection from passing because it sees nothing.
func TestWrongImportsAreFound(t *testing.T) {
	for _, tc := range []struct {
		pkg, name string
		ok        bool
	}{
		{"cmd/ashlar", module + "/s3api", true},
		{"cmd/ashlar", module + "/internal/devs3", true},
		{"cmd/ashlar", module + "/origin/origintest", false},
		{"s3api", module + "/gateway", true},
		{"s3api", module + "/origin", true},
		{"s3api", module + "/s3api/sigv4", true},
		{"s3api", module + "/origin/s3origin", false},
		{"s3api", module + "/internal/devs3", false},
		{"s3api/sigv4", module + "/s3api", false},
		{"gateway", module + "/blockstore", true},
		{"gateway", module + "/blockstore/memory", false},
		{"gateway", module + "/s3api", false},
		{"gateway", "net/http", false},
		{"blockstore/memory", module + "/blockstore", true},
		{"blockstore/memory", module + "/origin", false},
		{"origin/s3origin", module + "/origin", true},
		{"origin/s3origin", "net/http", true},
		{"origin/s3origin", module + "/s3api/sigv4", false},
		{"origin", module + "/blockstore", false},
		{"cluster", module + "/client", false},
		{"client", module + "/gateway", false},
		{"client", module + "/origin/s3origin", true},
		{"internal/devs3", module + "/s3api/sigv4", true},
		{"somewhere", "fmt", false},
	} {
		if got := wrongImports(tc.pkg, map[string]bool{tc.name: true}); (got == "") != tc.ok {
			t.Errorf("%s importing %s: %q", tc.pkg, tc.name, got)
		}
	}
}
