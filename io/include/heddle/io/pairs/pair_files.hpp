#pragma once

#include <heddle/core/config/config.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/pairs/text_pair.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// Whether a path is that of text that is trained on as it is: FILE.tsv, FILE.tsv.gz, FILE.tsv.zst, "-", and a file of
/// another name that does not begin as HDF5 does, unless that name is FILE.h5.
bool is_text_file(std::string const& path);

/// The pairs of TSV files: SOURCE<TAB>TARGET, or SOURCE<TAB>TARGET<TAB>ALIGNMENT. Throws DataError as IndexedText does,
/// and for another number of columns. "-" alone is the standard input, a stream, which is opened when it is read.
std::unique_ptr<TextPairs> open_tsv(std::vector<std::string> const& paths);
/// The pairs of files side by side. Throws DataError as IndexedText does, and for unequal numbers of lines.
std::unique_ptr<TextPairs> open_parallel(ParallelFiles const& files);

/// The pairs of a dataset, which must outlive them, and which only they may read.
std::unique_ptr<TextPairs> dataset_pairs(Dataset const& dataset, SampleFields fields);

}  // namespace heddle
