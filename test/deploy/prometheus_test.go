//go:build integration

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ruleFile is what is looked at of a file of rules.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Record, Expr, For string
			Labels, Annotations      map[string]string
		}
	}
}

// documented are the files whose metrics have to be in the manual.
var documented = []string{"rules.yaml", "cluster-rules.yaml"}

// TestMetricsExist checks that rules and dashboard ask for nothing that the manual does not list. That the manual lists what
// a node exports is checked beside the node.
func TestMetricsExist(t *testing.T) {
	metric := regexp.MustCompile(`\bashlar_[a-z0-9_]*[a-z0-9]\b`)
	manual := metric.FindAllString(read(t, root, "docs", "operations.md"), -1)
	texts := map[string]string{"the dashboard": strings.Join(expressions(t), "\n")}
	for _, file := range documented {
		texts[file] = read(t, folder, "prometheus", file)
	}
	for name, text := range texts {
		used := metric.FindAllString(text, -1)
		if len(used) == 0 {
			t.Errorf("%s uses no metric", name)
		}
		for _, m := range used {
			if !slices.Contains(manual, m) && !slices.Contains(manual, strings.TrimSuffix(m, "_bucket")) {
				t.Errorf("%s uses %s, which the manual lacks", name, m)
			}
		}
	}
}

// expressions are those of the dashboard's panels.
func expressions(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, folder, "grafana", "ashlar.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []string
	ids := make(map[int]bool)
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q has an id twice, or is too wide", p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q is empty", p.Title)
		}
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// TestPromtool has Prometheus's own tool look at all there is: the scrape configuration, the rules, the expressions of the
// dashboard as rules, and what the alerts do in the cases of alerts.yaml.
func TestPromtool(t *testing.T) {
	promtool, dir := setting(t, "TEST_PROMTOOL"), t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	// Builds of Debian know nothing of Kubernetes. What is relabelled is the same elsewhere.
	conf := read(t, folder, "prometheus", "prometheus.yml")
	const discovery = "    kubernetes_sd_configs:\n      - role: pod\n"
	if strings.Count(conf, discovery) != 1 {
		t.Fatal("pods are not looked for")
	}
	var groups strings.Builder
	groups.WriteString("groups: [{name: dashboard, rules: [\n")
	for i, e := range expressions(t) {
		e = strings.ReplaceAll(e, "$__rate_interval", "5m")
		fmt.Fprintf(&groups, "{record: 'dashboard:%d', expr: %q},\n", i, e)
	}
	groups.WriteString("]}]\n")
	for _, name := range []string{"rules.yaml", "cluster-rules.yaml"} {
		run(t, promtool, "check", "rules", "--lint-fatal", write(name, read(t, folder, "prometheus", name)))
	}
	run(t, promtool, "check", "config", write("prometheus.yml",
		strings.Replace(conf, discovery, "    static_configs:\n      - targets: []\n", 1)))
	run(t, promtool, "check", "rules", write("dashboard.yaml", groups.String()))
	run(t, promtool, "test", "rules", "alerts.yaml")
}

// TestAlerts checks that each alert says how urgent it is, what it is and what to do, and is tried in alerts.yaml.
func TestAlerts(t *testing.T) {
	cases := read(t, "alerts.yaml")
	for _, name := range []string{"rules.yaml", "cluster-rules.yaml"} {
		for _, file := range documents[ruleFile](t, read(t, folder, "prometheus", name), false) {
			for _, r := range file.Groups[0].Rules {
				if r.Alert == "" {
					continue
				}
				if s := r.Labels["severity"]; s != "page" && s != "ticket" {
					t.Errorf("%s has severity %q", r.Alert, s)
				}
				if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
					t.Errorf("%s does not say what it is", r.Alert)
				}
				if !regexp.MustCompile(`alertname="?` + r.Alert + `"`).MatchString(cases) {
					t.Errorf("%s is not tried", r.Alert)
				}
			}
		}
	}
}

// TestJobs checks that the scrape configuration finds pods by the labels and the port that they have, and names jobs as
// the rules do.
func TestJobs(t *testing.T) {
	conf := read(t, folder, "prometheus", "prometheus.yml")
	for overlay, kind := range overlays {
		_, objects := build(t, overlay)
		pods := objects[kind].Spec.Template
		name, component := pods.Metadata.Labels["app.kubernetes.io/name"], pods.Metadata.Labels["app.kubernetes.io/component"]
		admin := slices.ContainsFunc(pods.Spec.Containers[0].Ports, func(p struct {
			Name string
			Port int `yaml:"containerPort"`
		}) bool {
			return p.Name == "admin"
		})
		if !admin || !strings.Contains(conf, "regex: "+name+";admin\n") {
			t.Errorf("pods of %s are not found", overlay)
		}
		if job := "ashlar-" + component; !strings.Contains(conf, "job_name: "+job+"\n") {
			t.Errorf("%s is no job that the configuration has by name too", job)
		}
	}
}
