//go:build integration

package deploy

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestImage does what the Dockerfile's first stage does, without Docker: it copies what the ignore file lets through, and
// builds with the Dockerfile's own command.
func TestImage(t *testing.T) {
	dockerfile := read(t, folder, "Dockerfile")
	from := regexp.MustCompile(`(?m)^FROM --platform=\$BUILDPLATFORM golang:(\S+) AS build$`).FindStringSubmatch(dockerfile)
	toolchain := regexp.MustCompile(`(?m)^export GOTOOLCHAIN := go(\S+)$`).FindStringSubmatch(read(t, root, "Makefile"))
	if from == nil || toolchain == nil || from[1] != toolchain[1] {
		t.Errorf("the image is built by Go %v, everything else by %v", from, toolchain)
	}
	build := regexp.MustCompile(`(?m)^RUN (go build .* -o )(/out/ashlar)( .*)$`).FindStringSubmatch(dockerfile)
	if build == nil || !strings.Contains(dockerfile, "ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH\n") {
		t.Fatal("no command found that builds")
	}
	src, binary := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "ashlar")
	if err := os.Mkdir(src, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^!(\S+)$`).FindAllStringSubmatch(
		read(t, folder, "Dockerfile.dockerignore"), -1) {
		switch info, err := os.Stat(filepath.Join(root, name[1])); {
		case os.IsNotExist(err):
		case err != nil:
			t.Fatal(err)
		case info.IsDir():
			if err := os.CopyFS(filepath.Join(src, name[1]), os.DirFS(filepath.Join(root, name[1]))); err != nil {
				t.Fatal(err)
			}
		default:
			if err := os.WriteFile(filepath.Join(src, name[1]), []byte(read(t, root, name[1])), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", build[1]+binary+build[3])
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "VERSION=v1.2.3-test", "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary needs a %v, and the image has none", p.Type)
		}
	}
	if out := run(t, binary, "version"); !strings.Contains(out, "v1.2.3-test") {
		t.Errorf("the binary says it is %s", out)
	}
}

// TestLastStage checks what is in the image and how it starts.
func TestLastStage(t *testing.T) {
	_, last, found := strings.Cut(read(t, folder, "Dockerfile"), "\nFROM scratch\n")
	if !found || strings.Contains(last, "RUN ") {
		t.Fatal("the image is made from something, or runs something")
	}
	for _, line := range []string{
		"USER 65532:65532",
		`ENTRYPOINT ["/ashlar"]`,
		`CMD ["serve", "--config", "/etc/ashlar/ashlar.toml"]`,
		"COPY --from=build --chown=65532:65532 /out/cache /var/cache/ashlar",
		"COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt",
	} {
		if !strings.Contains(last, line+"\n") {
			t.Errorf("the Dockerfile lacks %s", line)
		}
	}
}
