package strictjson

import (
	"strings"
	"testing"
)

// TEST-043, SUB-040 … SUB-043, AMB-017, AMB-065.
func TestNumbersKeepToTheirBounds(t *testing.T) {
	ones := func(n int) string { return strings.Repeat("1", n) }
	zeros := func(n int) string { return strings.Repeat("0", n) }
	tests := []struct{ literal, canonical, rule string }{
		{"0", "0", ""},
		{"-0", "0", ""},
		{"0.000", "0", ""},
		{"0e308", "0", ""},
		{"0e-308", "0", ""},
		{"0e309", "", ruleExponent},
		{"0e-309", "", ruleExponent},
		{"1", "1e0", ""},
		{"1.0", "1e0", ""},
		{"1e0", "1e0", ""},
		{"10e-1", "1e0", ""},
		{"-1.50", "-15e-1", ""},
		{"100", "1e2", ""},
		{"0.001200", "12e-4", ""},
		{"9007199254740993", "9007199254740993e0", ""},
		{"1e308", "1e308", ""},
		{"1E+308", "1e308", ""},
		{"1e0000308", "1e308", ""},
		{"1e309", "", ruleExponent},
		{"1e99999999999999999999", "", ruleExponent},
		{"1e-308", "1e-308", ""},
		{"1e-309", "", ruleExponent},
		{"15e-308", "15e-308", ""},
		{"1.5e-308", "", ruleStripped}, // e = -309
		{"0.1e-308", "", ruleStripped}, // e = -309
		{"10e-309", "", ruleExponent},  // explicit one out of range, though 1e-308
		{"0.10e-307", "1e-308", ""},    // zeros do not count
		{"10e308", "", ruleStripped},   // e = 309
		{"100e306", "1e308", ""},       //
		{"1000e306", "", ruleStripped}, //
		{"0.01e308", "1e306", ""},      //
		{"1.7976931348623157e308", "17976931348623157e292", ""},
		{"-1.7976931348623157e308", "-17976931348623157e292", ""},
		{"1.7976931348623158e308", "17976931348623158e292", ""}, // rounds to the largest double
		{"1.7976931348623159e308", "", ruleMagnitude},
		{"1.8e308", "", ruleMagnitude},
		{"9e308", "", ruleMagnitude},
		{"12e307", "12e307", ""},
		{"18e307", "", ruleMagnitude},
		{ones(256), ones(256) + "e0", ""},
		{ones(257), "", ruleNumberLength},
		{"1" + zeros(255), "1e255", ""},
		{"-" + ones(255), "-" + ones(255) + "e0", ""},
		{"-" + ones(256), "", ruleNumberLength},
		{"0." + zeros(253) + "1", "1e-254", ""},
		{"0." + zeros(254) + "1", "", ruleNumberLength},
		{"0." + ones(250) + "e-58", ones(250) + "e-308", ""},
		{"0." + ones(250) + "e-59", "", ruleStripped},
		{ones(252) + "e56", ones(252) + "e56", ""},
		{ones(252) + "e57", ones(252) + "e57", ""}, // 1.1e308
		{ones(252) + "e58", "", ruleMagnitude},
		{"0e" + zeros(251) + "308", "0", ""},
	}
	for _, test := range tests {
		got, err := AppendCanonical(nil, []byte(test.literal), 0)
		if rule := ruleOf(err); string(got) != test.canonical || rule != test.rule {
			t.Errorf("%s = %q, rule %q; want %q, rule %q", test.literal, got, rule, test.canonical, test.rule)
		}
		if rule := ruleOf(Check([]byte(test.literal), 0)); rule != test.rule {
			t.Errorf("Check(%s): rule %q, want %q", test.literal, rule, test.rule)
		}
	}
}

func ruleOf(err error) string {
	if err == nil {
		return ""
	}
	return err.(*Error).Rule
}

func TestCanonicalUintIsTheNumberOfItsLiteral(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 7: "7e0", 30000: "3e4", 1<<64 - 1: "18446744073709551615e0"} {
		if got := AppendCanonicalUint(nil, n); string(got) != want {
			t.Errorf("%d = %s, want %s", n, got, want)
		}
	}
}
