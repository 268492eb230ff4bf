//go:build !poison

package memory

// Builds with the tag "poison" make free slots unusable; others leave them alone. See poison_on.go.

func poisonSlot([]byte) {}
func poisonSpan([]byte) {}
func revive([]byte)     {}
