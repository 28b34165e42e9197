package settle

import (
	"math"
	"testing"

	"github.com/orbitkit/orbit/internal/sqldb"
)

func TestKeyIsReleasedByItsHolderOnly(t *testing.T) { // LIC-005, LIC-015, TOK-005
	holder, other := sqldb.NewID(), sqldb.NewID()
	k := &Key{Version: 6}
	token, ok := k.Take(holder, 2)
	if !ok || token != 7 || k.Free() {
		t.Fatalf("Take = %d, %v; want 7", token, ok)
	}
	if token, ok := k.Take(other, 1); ok || token != 0 {
		t.Errorf("a held key was taken with token %d", token)
	}
	if k.Release(other, 2) || k.Release(holder, 1) || k.Version != 7 {
		t.Error("a key was released by somebody who does not hold it")
	}
	if !k.Release(holder, 2) || !k.Free() || k.Version != 8 {
		t.Errorf("after its release the key = %+v, want it free with version 8", k)
	}
	if k.Release(holder, 2) || k.Version != 8 {
		t.Error("a key was released twice")
	}
}

func TestKeyIsExhaustedBeforeItsReleaseWouldWrap(t *testing.T) { // AMB-009, TOK-007
	for _, c := range []struct {
		version uint64
		ok      bool
	}{{math.MaxUint64 - 3, true}, {math.MaxUint64 - 2, true}, {math.MaxUint64 - 1, false}, {math.MaxUint64, false}} {
		k := &Key{Version: c.version}
		if _, ok := k.Take(sqldb.NewID(), 1); ok != c.ok {
			t.Errorf("Take at version %d = %v, want %v", c.version, ok, c.ok)
		}
	}
}

func TestRaiseNeverLowersAKey(t *testing.T) { // TOK-018
	holder := sqldb.NewID()
	for _, c := range []struct {
		version, least, want uint64
	}{{5, 6, 6}, {6, 6, 6}, {7, 6, 7}, {math.MaxUint64, MaxClaimVersion, math.MaxUint64}, {0, MaxClaimVersion, MaxClaimVersion}} {
		k := &Key{Version: c.version, Holder: holder, HolderEpoch: 1}
		if did := k.Raise(c.least); did != (c.want != c.version) || k.Version != c.want || k.Holder != holder {
			t.Errorf("Raise(%d) of %d = %v, %+v; want version %d", c.least, c.version, did, k, c.want)
		}
	}
}
