#pragma once

#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/preparation/prepare.hpp>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "block_pipeline.hpp"
#include "given_texts.hpp"
#include "text_findings.hpp"

namespace heddle {

/// The files of one dataset: each has at most `max` samples, if that is above 0.
class DatasetFiles {
 public:
  DatasetFiles(std::filesystem::path directory, std::string name, Vocabulary vocabulary, bool lines,
               SampleFields fields, std::int64_t max);

  /// The file for the next sample.
  DatasetWriter& writer();
  std::int64_t samples() const;
  /// Sets those of all samples, before commit().
  void set_findings(std::map<std::string, double> findings) { writers_.back().set_findings(std::move(findings)); }
  void commit();

 private:
  std::filesystem::path directory_;
  std::string name_;
  Vocabulary vocabulary_;
  bool lines_;
  SampleFields fields_;
  std::int64_t max_;
  std::vector<DatasetWriter> writers_;
};

/// Adds samples to the files of a dataset, in their order, and counts what is in them.
class SampleCollector {
 public:
  SampleCollector(DatasetFiles& files, bool pairs) : files_(files), pairs_(pairs) {}

  void add(EncodedBlock const& block);
  /// The counts, which it also adds to the files if they have samples.
  PreparedText finish();

 private:
  /// The values of a block's samples that have not been added.
  struct Values {
    std::span<std::int32_t const> source, target;
    std::span<TokenLink const> links;
    std::span<float const> weights;
  };

  void add(EncodedSample const& sample, Values& next);

  DatasetFiles& files_;
  bool pairs_;
  PreparedText report_;
  RepeatCounter repeats_;
  RatioCounter ratios_;
  UnknownCharacters unknown_;
};

/// Reads and encodes a text, and adds its samples to the files in the order of its lines. Throws DataError also for a
/// text without samples.
PreparedText encode_text(GivenTexts const& texts, PrepareOptions const& options, bool ahead, BlockPipeline& pipeline,
                         DatasetFiles& files, std::ostream& progress);

}  // namespace heddle
