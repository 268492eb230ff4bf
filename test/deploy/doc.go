// Package deploy checks what deploy/ holds: the container image, manifests for Kubernetes and Docker Compose, a systemd
// unit, and rules and a dashboard for Prometheus. That each is well formed is left to the tools that take them; that
// they fit each other, the binary and its manual is looked at here.
package deploy
