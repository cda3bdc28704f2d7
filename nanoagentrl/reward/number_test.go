package reward

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// decimal returns a value as a test table writes it; "" for none.
func decimal(value *big.Rat, ok bool) string {
	if !ok {
		return ""
	}
	text := value.FloatString(12)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]string{
		"72": "72", " 72\n": "72", "+3": "3", "-3": "-3", "−3": "-3", "- 3": "-3", "0": "0", "-0": "0", "007": "7",
		"70,000": "70000", "1,234,567.50": "1234567.5", "70,000.00": "70000", "72.": "72", ".5": "0.5", "-.5": "-0.5",
		"$70,000": "70000", "-$5": "-5", "$-5": "-5", "$ 5": "5", "€5.25": "5.25", "₹1,000": "1000",
		"50%": "50", "50 %": "50", "1/2": "0.5", "-1/2": "-0.5", "1 1/2": "1.5", "-1 1/2": "-1.5", "10/4": "2.5",
		"1e3": "1000", "1.5E+2": "150", "25e-1": "2.5",
		"0.1": "0.1", "100000000000000000000.01": "100000000000000000000.01",
		"": "", " ": "", "-": "", "$": "", ".": "", "--3": "", "$$3": "", "72 clips": "", "x72": "", "1,23": "", "1,2345": "",
		"1,000,00": "", "1.2.3": "", "1/0": "", "1/2/3": "", "1 3/2": "", "7/8/2020": "", "NaN": "", "Inf": "", "0x10": "",
		"1e99": "", "٣": "", "½": "", "(3)": "", "1 000": "", "five": "", "5-3": "",
	} {
		assert.Equal(t, want, decimal(ParseNumber(text)), "%q", text)
	}
}

func TestBareCommaIsNoNumber(t *testing.T) {
	assert.Equal(t, "72", decimal(LastNumber("The total is 72 clips, altogether.")))
	assert.Equal(t, "72", decimal(LastNumber("72 clips , . $ - altogether -.")))
	assert.Equal(t, "", decimal(LastNumber("none, at all. $ - #### ,")))
}

func TestSignIsNotLost(t *testing.T) {
	assert.True(t, NumberEqual("#### -3", "-3"))
	assert.False(t, NumberEqual("#### -3", "3"))
	for text, want := range map[string]string{
		"#### +3": "3", "#### −3": "-3", "#### - 3": "-3", "it is -3": "-3", "it is −3.": "-3", "x=-3": "-3", "(-3)": "-3",
		"loss: -$3": "-3", "loss: $-3": "-3", `-\$3`: "-3", "A:-3": "-3",
		// an operator, a dash of a list and a range are no signs
		"5-3": "3", "5 - 3": "3", "(5)-3": "3", "x-3": "3", "5%-3": "3", "- 3 apples": "3", "--3": "3", "2010-2015": "2015",
		"5−3": "3", "a -3": "-3",
	} {
		assert.Equal(t, want, decimal(LastNumber(text)), "%q", text)
	}
}

func TestCurrencyThousandsAndTrailingPoints(t *testing.T) {
	for text, want := range map[string]string{
		"She made $70,000 in all.": "70000", "70,000.00 dollars": "70000", "#### $70,000": "70000", "#### 72.": "72",
		"#### 72.00": "72", "that is 1,2": "2", "1, 2, 3": "3", "1,000,000, then": "1000000", "1234,567": "567",
		"half is .5": "0.5", "it costs $.75": "0.75", "v1.2.3": "3", `\boxed{72}`: "72", "**72**": "72", "5kg": "5",
		"P500": "500", "50%": "50", "it is 1e3": "1000", "3e": "3", "2e5x": "5", "the 3rd": "3",
	} {
		assert.Equal(t, want, decimal(LastNumber(text)), "%q", text)
	}
}

func TestFractionPolicy(t *testing.T) {
	for text, want := range map[string]string{
		"he ate 1/2": "0.5", "#### 1/2": "0.5", "2 1/2 hours": "2.5", "-2 1/2": "-2.5", "x 3 4": "4", "48/2 = 24": "24",
		"9/0":         "0",
		"on 7/8/2020": "2020", "1/2.5": "2.5", "5 3/2": "1.5", "2  1/2": "0.5", "1/2 1/2": "0.5", "3 / 4": "4",
	} {
		assert.Equal(t, want, decimal(LastNumber(text)), "%q", text)
	}
}

func TestLastAnswerCountsNotTheFirst(t *testing.T) {
	for text, want := range map[string]string{
		"answer: 5 is wrong... #### 10":               "10",
		"#### 5\nno, wait\n#### 10":                   "10",
		"#### 10 (that is 4 + 6)":                     "10",
		"#### 10\nthe rest is 3":                      "10",
		"####10":                                      "10",
		"#### **10**":                                 "10",
		"####\n10 and 3":                              "10",
		"Answer: 5. Answer: 10":                       "10",
		"#### Step 1: add\n2 + 3 = 5\n#### Result\n5": "5", // headings are no answers
		"#### 10 #### unknown":                        "10",
		"ten":                                         "",
		"":                                            "",
		"####":                                        "",
	} {
		assert.Equal(t, want, decimal(LastNumber(text)), "%q", text)
	}
}

func TestNumbersAreComparedExactly(t *testing.T) {
	assert.True(t, NumberEqual("0.1 + 0.2 = 0.30", "0.3"))
	assert.True(t, NumberEqual("10.0", "10"))
	assert.False(t, NumberEqual("9007199254740993", "9007199254740992")) // equal as float64
	assert.False(t, NumberEqual("0.333", "1/3"))
	assert.False(t, NumberEqual("72", "seventy-two"))
	assert.False(t, NumberEqual("", "0"))
	assert.True(t, NumberEqual("#### 1072", "1,072"))
}

func TestAnyTextIsSafe(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	pieces := strings.Split("0 1 12 345 , . - + − $ / % e E #### \\ \xff \xe2 é \n x ) 1/2", " ")
	for range 20_000 {
		var text strings.Builder
		for range random.IntN(12) {
			text.WriteString(pieces[random.IntN(len(pieces))])
			if random.IntN(4) == 0 {
				text.WriteByte(' ')
			}
		}
		value, ok := LastNumber(text.String())
		assert.Equal(t, ok, value != nil)
		assert.Equal(t, strings.ContainsAny(text.String(), "0123456789"), ok, "%q", text.String())
		if whole, parsed := ParseNumber(text.String()); parsed {
			assert.NotNil(t, whole)
		}
	}
	long, ok := LastNumber(strings.Repeat("1", 50_000) + "e30")
	assert.True(t, ok)
	assert.Equal(t, 1, long.Sign())
}

// 1,200 solutions that real models wrote, with the verdicts of the data set's authors. All agree.
func TestModelSolutionsAreJudgedAsByTheirSource(t *testing.T) {
	text, err := os.ReadFile(testenv.Shared(t, "data/gsm8k/example_model_solutions.jsonl"))
	require.NoError(t, err)
	judged, right := 0, 0
	for line := range strings.Lines(string(text)) {
		var row map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		var truth string
		require.NoError(t, json.Unmarshal(row["ground_truth"], &truth))
		gold := strings.TrimSpace(truth[strings.LastIndex(truth, "A:")+2:])
		for _, model := range []string{"6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"} {
			var made struct {
				Solution  string `json:"solution"`
				IsCorrect bool   `json:"is_correct"`
			}
			require.NoError(t, json.Unmarshal(row[model], &made))
			judged++
			if made.IsCorrect {
				right++
			}
			assert.Equal(t, made.IsCorrect, NumberEqual(made.Solution, gold), "%s: %s", model, made.Solution)
		}
	}
	assert.Equal(t, 1200, judged)
	assert.Equal(t, 462, right)
}
