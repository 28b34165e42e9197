package auth

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitkit/orbit/internal/bubble"
)

// A question that comes while an answer is worked out is answered by the next work, which
// all who wait share.
func TestSharedAnswersAreNeverOlderThanTheQuestion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		value, works := 0, 0
		s := newShared(func(string) (int, error) {
			mu.Lock()
			seen := value // what the work sees when it begins
			works++
			mu.Unlock()
			time.Sleep(time.Second)
			return seen, nil
		})
		ask := func(want int) {
			got, err := s.get(t.Context(), "k")
			if err != nil || got != want {
				t.Errorf("got %d, %v; want %d", got, err, want)
			}
		}
		var asking sync.WaitGroup
		asking.Go(func() { ask(0) })
		synctest.Wait() // its work is under way
		mu.Lock()
		value = 1
		mu.Unlock()
		for range 50 {
			asking.Go(func() { ask(1) })
		}
		asking.Wait()
		if works != 2 {
			t.Errorf("51 questions took %d works, want 2", works)
		}
		if len(s.turns) != 0 {
			t.Errorf("%d keys are remembered, want none", len(s.turns))
		}
		ask(1)
		if works != 3 {
			t.Errorf("%d works, want 3: an answer was kept", works)
		}
	})
}

// One who gives up does not spoil the answer of the others.
func TestSharedSurvivesOneWhoGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newShared(func(string) (int, error) {
			time.Sleep(time.Second)
			return 7, nil
		})
		var asking sync.WaitGroup
		asking.Go(func() { s.get(t.Context(), "k") })
		synctest.Wait()
		hurried, cancel := context.WithCancel(t.Context())
		for range 3 { // the first of them is to do the work
			asking.Go(func() {
				if got, err := s.get(hurried, "k"); err == nil && got != 7 || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got %d, %v", got, err)
				}
			})
			synctest.Wait()
		}
		asking.Go(func() {
			if got, err := s.get(t.Context(), "k"); got != 7 || err != nil {
				t.Errorf("patient one got %d, %v; want 7", got, err)
			}
		})
		synctest.Wait()
		cancel()
		asking.Wait()
	})
}
