package dense

import (
	"context"
	"errors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/embed"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// Source says what a Searcher searches and with which encoder.
type Source struct {
	// Corpus is the file of the passages. Index is the folder of an index; with a corpus it must be that of the corpus,
	// and is made if it is not there. Without a folder the passages are encoded into memory.
	Corpus, Index string
	// Passages, if not nil, are encoded into memory instead of the corpus.
	Passages []data.Passage
	// Encoder is the folder of the encoder or its name on the hub.
	Encoder string
	Hub     weights.HubOptions
	Embed   embed.Options
	Rebuild bool
	// Progress is told how far encoding is; nil for nobody.
	Progress func(Progress)
}

// Open opens the encoder on a device, and the index, which it makes first if it has to.
func (s Source) Open(ctx context.Context, dev *device.Device) (_ *Searcher, err error) {
	encoder, err := s.OpenEncoder(ctx, dev)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			encoder.Close()
		}
	}()
	index, err := s.open(ctx, encoder)
	if err != nil {
		return nil, err
	}
	searcher, err := NewSearcher(index, encoder)
	if err != nil {
		return nil, errors.Join(err, index.Close())
	}
	return searcher, nil
}

// OpenEncoder opens the encoder alone.
func (s Source) OpenEncoder(ctx context.Context, dev *device.Device) (*embed.Encoder, error) {
	return embed.Open(ctx, dev, s.Encoder, s.Hub, s.Embed)
}

func (s Source) open(ctx context.Context, encoder *embed.Encoder) (*Index, error) {
	passages := s.Passages
	switch {
	case passages == nil && s.Index != "":
		if s.Corpus != "" {
			o := BuildOptions{Rebuild: s.Rebuild, Progress: s.Progress}
			if _, err := Build(ctx, s.Corpus, s.Index, encoder, o); err != nil {
				return nil, err
			}
		}
		return Open(s.Index)
	case passages == nil:
		var err error
		if passages, err = data.ReadCorpus(s.Corpus); err != nil {
			return nil, err
		}
	}
	return New(ctx, passages, encoder, func(done int) {
		if s.Progress != nil {
			s.Progress(Progress{Stored: len(passages), Encoded: done, Total: len(passages)})
		}
	})
}
