#pragma once

#include <boost/json.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/samples/sample_source.hpp>
#include <string>
#include <vector>

#include "inspection/model/model_view.hpp"

namespace heddle {

/// Sizes, vocabulary, lengths and `samples` samples, evenly spread over the dataset, as text.
std::string describe(Dataset const& dataset, std::int64_t samples);
/// Numbers of pieces and special ids; then the digest.
std::string describe(Vocabulary const& vocabulary, std::string const& digest, bool has_lines = false);

/// {"name", "kind", "samples", "sides": [{"name", "tokens", "histogram": [[first length, last length, samples]]}],
/// "examples": [[text, …]]}
boost::json::object to_json(Dataset const& dataset, std::int64_t samples);

/// [{"name", "lengths", "texts"}]: the sides of a pack of the first samples as a model of this max_length reads them,
/// lines joined to sequences; some of them also as text, with masks. `samples` are those of the dataset (samples_for);
/// longer ones are left out, as in training.
boost::json::array pack_of_samples(SampleSource const& samples, Dataset const& dataset, std::int64_t max_length);

/// The first pairs of a dataset, at most `count`; none of a dataset of lines.
std::vector<SentenceText> first_pairs(Dataset const& dataset, std::int64_t count);
/// Short samples from the start of a dataset, at most `count`.
std::vector<SentenceText> example_sentences(Dataset const& dataset, std::size_t count);

}  // namespace heddle
