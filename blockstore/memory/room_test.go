package memory

import (
	"math/rand/v2"
	"testing"
)

// Where there is said to be room for a slot, one can be taken: else the mover would look for room for ever.
func TestRoomCanBeTaken(t *testing.T) {
	for seed := uint64(1); seed < 100; seed++ {
		rng := rand.New(rand.NewPCG(seed, 7))
		a, err := newArena(1<<20+int64(rng.IntN(4000)), 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		var held [][]byte
		classes := make([]int, 1+rng.IntN(3))
		for i := range classes {
			classes[i] = rng.IntN(20)
		}
		for range 20_000 {
			ci := classes[rng.IntN(len(classes))]
			if m := a.take(ci); m != nil {
				held = append(held, m)
				continue
			}
			if short := a.short(ci); short <= 0 {
				t.Errorf("seed %d: class %d is short of %d bytes, and has nothing to take", seed, ci, short)
				break
			}
			for n := 1 + rng.IntN(60); n > 0 && len(held) > 0; n-- {
				i := rng.IntN(len(held))
				a.free(held[i])
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
			}
		}
		for _, m := range held {
			a.free(m)
		}
		a.close()
	}
}
