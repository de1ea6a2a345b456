package cluster

import "testing"

func TestBalanceText(t *testing.T) {
	for b := BalanceRandom; b <= BalanceSourcePortHash; b++ {
		text, err := b.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Balance
		if err := got.UnmarshalText(text); err != nil || got != b {
			t.Errorf("%s: got %v, error %v", text, got, err)
		}
	}
}

func TestWeights(t *testing.T) {
	for n := range MaxWeight + 1 {
		if got := WeightOf(n).Int(); got != n {
			t.Errorf("got %d, want %d", got, n)
		}
	}
	if WeightOf(1) != Weight(0) || WeightOf(0) >= WeightOf(1) || WeightOf(99) >= WeightOf(100) {
		t.Error("the zero value is not the weight 1, or the order is not the order of weights")
	}
}
