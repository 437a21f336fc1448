#pragma once

#include <filesystem>
#include <heddle/io/checkpoint/checkpoint.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Notes in `origin` (CheckpointContents::origin, under import_record) where a model came from: the directory's name,
/// the family, the date, and the SHA-256 of the weights' files and of those in `origin` that are beside them.
void record_import(std::map<std::string, std::string>& origin, std::filesystem::path const& from,
                   std::string_view family, std::vector<std::filesystem::path> const& weights);

/// Adds to the record that pieces were added to the vocabulary; `run` is the run without them.
void record_pieces(std::map<std::string, std::string>& origin, std::filesystem::path const& run, std::int64_t pieces);

/// The SHA-256 of a file, read piece by piece. Throws DataError where it cannot be read.
std::string digest_of_file(std::filesystem::path const& path);

/// The record in lines: "a model of the family marian in opus-mt-en-de, imported on 2026-11-26", then one for each file
/// and each growth of the vocabulary. None for a model that was trained here.
std::vector<std::string> describe_origin(CheckpointContents const& contents);

}  // namespace heddle
