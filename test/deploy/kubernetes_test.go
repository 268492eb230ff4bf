//go:build integration

package deploy

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

type labels map[string]string

// object is what is looked at of the objects of Kubernetes. That nothing is in them that should not be, and all is of the
// right type, is what the schemas say.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels labels
	}
	Data map[string]string // of a ConfigMap
	Spec struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Ports                    []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Selector    map[string]any // of a service the labels themselves
		ServiceName string         `yaml:"serviceName"`
		Template    struct {
			Spec     pod
			Metadata struct{ Labels labels }
		}
		VolumeClaimTemplates []struct {
			Metadata struct{ Name string }
			Spec     struct{ Resources resources }
		} `yaml:"volumeClaimTemplates"`
	}
}

type resources struct{ Requests, Limits map[string]string }

type pod struct {
	ServiceAccountName string `yaml:"serviceAccountName"`
	Grace              int    `yaml:"terminationGracePeriodSeconds"`
	SecurityContext    struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
		RunAsGroup   int  `yaml:"runAsGroup"`
		FSGroup      int  `yaml:"fsGroup"`
	} `yaml:"securityContext"`
	Spread []struct {
		LabelSelector struct {
			MatchLabels labels `yaml:"matchLabels"`
		} `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		Secret    *struct {
			SecretName string `yaml:"secretName"`
		}
		EmptyDir *struct {
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}
}

type container struct {
	Image string
	Args  []string
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	ReadinessProbe  probe `yaml:"readinessProbe"`
	LivenessProbe   probe `yaml:"livenessProbe"`
	Resources       resources
	SecurityContext struct {
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// overlays are what is applied, each with the kind of what runs the pods.
var overlays = map[string]string{"nodes-pvc": "StatefulSet", "nodes-emptydir": "StatefulSet", "gateway": "Deployment"}

// build returns the objects of an overlay, as text and by kind. There is one of each kind.
func build(t *testing.T, overlay string) (string, map[string]object) {
	t.Helper()
	text := run(t, setting(t, "TEST_KUSTOMIZE"), "build", filepath.Join(folder, "kubernetes", overlay))
	objects := make(map[string]object)
	for _, o := range documents[object](t, text, false) {
		if _, twice := objects[o.Kind]; twice {
			t.Fatalf("%s has two of %s", overlay, o.Kind)
		}
		objects[o.Kind] = o
	}
	return text, objects
}

// TestSchemas holds what is applied against the schemas of Kubernetes: of the oldest version that has all that is used,
// and of the newest.
func TestSchemas(t *testing.T) {
	validate := filepath.Join(setting(t, "TEST_KUBERNETES"), "bin", "kubernetes-validate")
	for overlay := range overlays {
		text, objects := build(t, overlay)
		file := filepath.Join(t.TempDir(), overlay+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"1.30", "1.37"} {
			// It names what it looked at.
			out := run(t, validate, "--strict", "-k", version, file)
			if n := strings.Count(out, "passed"); n != len(objects) {
				t.Errorf("%s, Kubernetes %s: %d of %d objects looked at", overlay, version, n, len(objects))
			}
		}
	}
}

// TestKubernetes checks that the objects of each overlay fit each other, their configuration, and the image.
func TestKubernetes(t *testing.T) {
	for overlay, kind := range overlays {
		t.Run(overlay, func(t *testing.T) {
			_, objects := build(t, overlay)
			if want := []string{"ConfigMap", kind, "PodDisruptionBudget", "Service", "ServiceAccount"}; !slices.Equal(
				slices.Sorted(maps.Keys(objects)), slices.Sorted(slices.Values(want))) {
				t.Fatalf("it has %v", slices.Sorted(maps.Keys(objects)))
			}
			workload, service := objects[kind], objects["Service"]
			p := workload.Spec.Template.Spec
			if len(p.Containers) != 1 || len(objects["ConfigMap"].Data) != 1 {
				t.Fatalf("%d containers, %d files", len(p.Containers), len(objects["ConfigMap"].Data))
			}
			c := parse(t, objects["ConfigMap"].Data["ashlar.toml"])
			checkSelectors(t, objects, workload)
			checkPorts(t, service, p.Containers[0], c)
			checkMounts(t, workload, objects["ConfigMap"].Metadata.Name, c)
			checkLimits(t, p, c)
			if p.ServiceAccountName != objects["ServiceAccount"].Metadata.Name {
				t.Errorf("the pod's service account is %q", p.ServiceAccountName)
			}
			if kind == "StatefulSet" && (workload.Spec.ServiceName != service.Metadata.Name ||
				service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses) {
				t.Errorf("pods of service %q get their names from %q, which is headless: %q, and publishes them all: %v",
					workload.Spec.ServiceName, service.Metadata.Name, service.Spec.ClusterIP,
					service.Spec.PublishNotReadyAddresses)
			}
		})
	}
}

// checkSelectors checks that whatever selects pods selects these.
func checkSelectors(t *testing.T, objects map[string]object, workload object) {
	t.Helper()
	pods := workload.Spec.Template.Metadata.Labels
	same := func(what string, got any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(pods) {
			t.Errorf("%s selects %v; the pods are %v", what, got, pods)
		}
	}
	same("the service", objects["Service"].Spec.Selector)
	same("the workload", workload.Spec.Selector["matchLabels"])
	same("the disruption budget", objects["PodDisruptionBudget"].Spec.Selector["matchLabels"])
	if len(workload.Spec.Template.Spec.Spread) != 2 {
		t.Error("pods are to be apart by machine and zone")
	}
	for _, s := range workload.Spec.Template.Spec.Spread {
		same("a spread constraint", s.LabelSelector.MatchLabels)
	}
	for kind, o := range objects {
		if kind != "ConfigMap" {
			same("the label of the "+kind, o.Metadata.Labels)
		}
	}
}

// checkPorts checks that the configuration listens where pods, service and probes say.
func checkPorts(t *testing.T, service object, c container, conf config) {
	t.Helper()
	listens := map[string]string{"s3": conf.Server.Listen, "admin": conf.Server.Admin}
	for _, p := range c.Ports {
		if listens[p.Name] != fmt.Sprintf(":%d", p.Port) {
			t.Errorf("port %s of the container is %d, of the configuration %q", p.Name, p.Port, listens[p.Name])
		}
		delete(listens, p.Name)
	}
	if len(listens) != 0 {
		t.Errorf("the container does not name %v", listens)
	}
	// Of a headless service, SRV records have the service's port, and clients connect to it at the pod.
	if ports := service.Spec.Ports; len(ports) != 1 || ports[0].Name != "s3" || ports[0].TargetPort != "s3" ||
		fmt.Sprintf(":%d", ports[0].Port) != conf.Server.Listen {
		t.Errorf("the service has %v", ports)
	}
	for path, probe := range map[string]probe{"/-/ready": c.ReadinessProbe, "/-/health": c.LivenessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port != "admin" {
			t.Errorf("the probe for %s asks %v", path, probe.HTTPGet)
		}
	}
}

// checkMounts checks that each file and folder of the configuration is where the pod has it, and that each volume is
// mounted and each mount a volume.
func checkMounts(t *testing.T, workload object, configMap string, conf config) {
	t.Helper()
	p := workload.Spec.Template.Spec
	disk := "" // size of what blocks are written to
	var volumes, mounts, writable []string
	at := make(map[string]string)
	for _, m := range p.Containers[0].VolumeMounts {
		mounts = append(mounts, m.Name)
		at[m.Name] = m.MountPath
		if !m.ReadOnly {
			writable = append(writable, m.MountPath)
		}
	}
	for _, v := range p.Volumes {
		volumes = append(volumes, v.Name)
		switch {
		case v.ConfigMap != nil:
			args := []string{"serve", "--config", path.Join(at[v.Name], "ashlar.toml")}
			if v.ConfigMap.Name != configMap || !slices.Equal(p.Containers[0].Args, args) {
				t.Errorf("the configuration is %s of %s; the arguments are %q", args[2], v.ConfigMap.Name, p.Containers[0].Args)
			}
		case v.Secret != nil:
			checkSecrets(t, v.Secret.SecretName, at[v.Name], conf)
		case v.EmptyDir != nil:
			disk = v.EmptyDir.SizeLimit
			for _, r := range []map[string]string{p.Containers[0].Resources.Requests, p.Containers[0].Resources.Limits} {
				if bytesOf(t, r["ephemeral-storage"]) <= bytesOf(t, disk) {
					t.Errorf("ephemeral storage of %s does not hold a disk of %s and a log", r["ephemeral-storage"], disk)
				}
			}
		}
	}
	for _, v := range workload.Spec.VolumeClaimTemplates {
		volumes = append(volumes, v.Metadata.Name)
		disk = v.Spec.Resources.Requests["storage"]
	}
	slices.Sort(volumes)
	slices.Sort(mounts)
	if !slices.Equal(volumes, mounts) {
		t.Errorf("volumes %v, mounts %v", volumes, mounts)
	}
	if conf.Cache.Disk.Path == "" {
		if len(writable) != 0 {
			t.Errorf("%v can be written, and need not", writable)
		}
		return
	}
	if !slices.Equal(writable, []string{conf.Cache.Disk.Path}) {
		t.Errorf("%v can be written; blocks are written to %s", writable, conf.Cache.Disk.Path)
	}
	// 5% are what file systems keep for themselves.
	if capacity := bytesOf(t, conf.Cache.Disk.Capacity); capacity+1<<30 > bytesOf(t, disk)*95/100 {
		t.Errorf("a capacity of %s and the reserve of 1 GiB are too much for a disk of %s", conf.Cache.Disk.Capacity, disk)
	}
}

// checkSecrets checks that the manual has a secret made with just the files that the configuration names.
func checkSecrets(t *testing.T, name, at string, conf config) {
	t.Helper()
	command := regexp.MustCompile(`kubectl create secret generic ` + name + `((?: \\?\n? *--from-file=\S+)+)`).
		FindStringSubmatch(read(t, root, "docs", "deploy.md"))
	if command == nil {
		t.Fatalf("docs/deploy.md does not make %s", name)
	}
	var made []string
	for _, m := range regexp.MustCompile(`--from-file=([a-z]+)=`).FindAllStringSubmatch(command[1], -1) {
		made = append(made, path.Join(at, m[1]))
	}
	wanted := conf.secrets()
	slices.Sort(made)
	slices.Sort(wanted)
	if !slices.Equal(made, wanted) {
		t.Errorf("docs/deploy.md makes %v, the configuration names %v", made, wanted)
	}
}

// checkLimits checks time and memory of a pod, and that it is nobody's.
func checkLimits(t *testing.T, p pod, conf config) {
	t.Helper()
	c := p.Containers[0]
	sleep := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if grace := time.Duration(p.Grace) * time.Second; grace <= sleep+conf.stopping(t) {
		t.Errorf("killed after %v, and stopping takes %v after %v", grace, conf.stopping(t), sleep)
	}
	for _, r := range []map[string]string{c.Resources.Requests, c.Resources.Limits} {
		if got, want := bytesOf(t, r["memory"]), conf.limit(t); got != want {
			t.Errorf("memory of %s is %d MiB; by the manual's rule it is %d", r["memory"], got>>20, want>>20)
		}
	}
	user := fmt.Sprintf("\nUSER %d:%d\n", p.SecurityContext.RunAsUser, p.SecurityContext.RunAsGroup)
	if s := p.SecurityContext; !s.RunAsNonRoot || s.RunAsUser == 0 || s.FSGroup != s.RunAsGroup ||
		!strings.Contains(read(t, folder, "Dockerfile"), user) {
		t.Errorf("the pod runs as %v, the image is made otherwise", s)
	}
	if s := c.SecurityContext; !s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		t.Error("the container may write to its root, or gain privileges")
	}
}

// TestGatewayFindsNodes checks that the gateway asks for the records that the nodes' service makes, and signs with a key
// that nodes know.
func TestGatewayFindsNodes(t *testing.T) {
	_, nodes := build(t, "nodes-pvc")
	_, gateway := build(t, "gateway")
	node := parse(t, nodes["ConfigMap"].Data["ashlar.toml"])
	conf := parse(t, gateway["ConfigMap"].Data["ashlar.toml"])
	service := nodes["Service"]
	if want := "_" + service.Spec.Ports[0].Name + "._tcp." + service.Metadata.Name; conf.Cluster.SRV != want {
		t.Errorf("the gateway asks for %q; the nodes are %q", conf.Cluster.SRV, want)
	}
	if !node.knows(conf.Cluster.Credentials) {
		t.Errorf("nodes don't know the gateway's %v as a cluster's", conf.Cluster.Credentials)
	}
	if node.Origin != conf.Origin {
		t.Errorf("the origin of nodes is %v, that of gateways %v", node.Origin, conf.Origin)
	}
}

// TestFlush keeps flush what it is in the binary.
func TestFlush(t *testing.T) {
	if source := read(t, root, "cmd", "ashlar", "node.go"); !strings.Contains(source,
		fmt.Sprintf("const flushTimeout = %d * time.Second", int(flush.Seconds()))) {
		t.Errorf("a node's flushTimeout is not %v", flush)
	}
}

// port is that of an address, with its colon.
func port(t *testing.T, address string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return ":" + p
}
