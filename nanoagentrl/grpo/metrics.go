package grpo

import "fmt"

// Metrics are sums over the policy tokens of a micro-batch. They add up over micro-batches; the methods turn the total
// into means.
type Metrics struct {
	// Tokens is the number of policy tokens. If it is 0 for a whole batch, nothing was trained.
	Tokens float64
	// RatioExcess is the sum of ratio - 1. The 1 is taken off so that small deviations survive a sum in float32.
	RatioExcess float64
	// ClippedLow and ClippedHigh count the tokens whose surrogate has lost its gradient to the clip: advantage < 0 and
	// ratio < 1-ClipLow, or advantage > 0 and ratio > 1+ClipHigh. A ratio outside the range on the other side counts
	// in neither, since its gradient is not cut.
	ClippedLow, ClippedHigh float64
	// K1 and K3 are the sums of the two estimates of KL(policy||reference), in nats; 0 without a reference.
	K1, K3 float64
	// PolicyLoss and KLLoss are the two parts of the loss, weights included: Loss = PolicyLoss + KLLoss.
	PolicyLoss, KLLoss float64
}

// NumMetrics is the length of the metrics vector of TokenLoss.
const NumMetrics = 8

// MetricsFromVector reads the metrics vector of TokenLoss, brought to the host. It returns an error if values does not
// have NumMetrics elements.
func MetricsFromVector[T float32 | float64](values []T) (Metrics, error) {
	if len(values) != NumMetrics {
		return Metrics{}, fmt.Errorf("grpo: a metrics vector has %d values, got %d", NumMetrics, len(values))
	}
	var m Metrics
	for i, field := range m.fields() {
		*field = float64(values[i])
	}
	return m, nil
}

// fields lists the sums in the order of the metrics vector.
func (m *Metrics) fields() [NumMetrics]*float64 {
	return [NumMetrics]*float64{&m.Tokens, &m.RatioExcess, &m.ClippedLow, &m.ClippedHigh, &m.K1, &m.K3,
		&m.PolicyLoss, &m.KLLoss}
}

// Add adds the sums of another micro-batch.
func (m *Metrics) Add(other Metrics) {
	others := other.fields()
	for i, field := range m.fields() {
		*field += *others[i]
	}
}

// MeanRatio returns the mean of the ratio over policy tokens, or 1 if there are none.
func (m *Metrics) MeanRatio() float64 { return 1 + m.perToken(m.RatioExcess) }

// ClipFrac returns the fraction of policy tokens whose surrogate has lost its gradient to the clip.
func (m *Metrics) ClipFrac() float64 { return m.perToken(m.ClippedLow + m.ClippedHigh) }

// MeanK1 returns the mean of k1 = logp - ref over policy tokens, in nats. It is unbiased and may be negative.
func (m *Metrics) MeanK1() float64 { return m.perToken(m.K1) }

// MeanK3 returns the mean of k3 over policy tokens, in nats. It is never negative.
func (m *Metrics) MeanK3() float64 { return m.perToken(m.K3) }

func (m *Metrics) perToken(sum float64) float64 {
	if m.Tokens == 0 {
		return 0
	}
	return sum / m.Tokens
}
