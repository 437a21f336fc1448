#pragma once

#include <heddle/io/pairs/modifiers.hpp>
#include <heddle/io/pairs/text_pair.hpp>
#include <heddle/io/samples/sample_source.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// Pairs of text and what is done to them.
struct PairSamplesSetup {
  std::shared_ptr<TextPairs const> pairs;
  Vocabulary vocabulary;
  PairForm form = PairForm::pairs;  ///< pairs, targets or prefixed
  std::optional<std::uint64_t> seed = {};
  std::string tag = {};  ///< text before each source
  std::string warning = {};
  Modifiers modifiers = {};
  SampleFields fields = {};  ///< that samples have where the pairs do
  WindowOrder::Sizes sizes = {};
  std::int64_t max_length = 1024;    ///< tokens of the longest sample of a stream that is used
  std::int64_t batch_tokens = 4096;  ///< of a batch, for which windows of a stream are kept
};

/// Samples of text that is modified and tokenized while it is read: a window at a time, by threads, and the next window
/// while samples of this one are taken. A sample's index is 2^32 times its window, plus its place there. Totals are
/// estimated from a few thousand pairs where there are more. Those of a stream are not known.
std::unique_ptr<SampleSource> pair_samples(PairSamplesSetup setup);

/// The samples that a configuration's task makes of pairs of text. Throws ConfigError, which begins with `where`, for a
/// task that does not read pairs, or reads both sides as one text.
std::unique_ptr<SampleSource> samples_for_text(Config const& config, Task const& task,
                                               std::shared_ptr<TextPairs const> pairs, Vocabulary const& vocabulary,
                                               Modifiers modifiers, SampleUse const& use, std::string const& where);

}  // namespace heddle
