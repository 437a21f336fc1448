#include "provenance.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <heddle/core/base/error.hpp>
#include <heddle/io/files/sha256.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <set>

namespace heddle {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// "2026-11-26", in UTC.
std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::now()));
}

/// The last part of a path that is not empty.
std::string name_of_place(fs::path const& path) {
  fs::path const absolute = fs::weakly_canonical(path);
  return absolute.filename().empty() ? absolute.parent_path().filename().string() : absolute.filename().string();
}

/// A member as text, whatever it is.
std::string member_text(json::object const& object, char const* key) {
  json::value const* const found = object.if_contains(key);
  return found == nullptr ? "?" : found->is_string() ? std::string(found->get_string()) : json::serialize(*found);
}

std::vector<json::object> objects_in(json::object const& record, char const* key) {
  std::vector<json::object> objects;
  json::value const* const found = record.if_contains(key);
  for (json::value const& each : found != nullptr && found->is_array() ? found->get_array() : json::array()) {
    if (each.is_object()) {
      objects.push_back(each.get_object());
    }
  }
  return objects;
}

}  // namespace

std::string digest_of_file(fs::path const& path) {
  std::ifstream file(path, std::ios::binary);
  Sha256 digest;
  std::string block(std::size_t{1} << 20, '\0');
  do {
    file.read(block.data(), std::ssize(block));
    digest.update(text_bytes(std::string_view(block).substr(0, static_cast<std::size_t>(file.gcount()))));
  } while (file);
  if (!file.eof()) {
    throw DataError("{} cannot be read", path.string());
  }
  return digest.finish();
}

void record_import(std::map<std::string, std::string>& origin, fs::path const& from, std::string_view family,
                   std::vector<fs::path> const& weights) {
  std::set<fs::path> paths(weights.begin(), weights.end());
  fs::path const directory = fs::is_directory(from) ? from : from.parent_path();
  for (auto const& [name, bytes] : origin) {
    if (fs::is_regular_file(directory / name)) {
      paths.insert(directory / name);
    }
  }
  json::array files;
  for (fs::path const& path : paths) {
    files.push_back({{"name", path.filename().string()}, {"sha256", digest_of_file(path)}});
  }
  json::object const record{{"directory", name_of_place(directory)},
                            {"family", std::string(family)},
                            {"date", today()},
                            {"files", std::move(files)}};
  origin[import_record] = json::serialize(record);
}

void record_pieces(std::map<std::string, std::string>& origin, fs::path const& run, std::int64_t pieces) {
  json::object record = json_object_in(origin, import_record);
  json::value& grown = record["extended"];
  (grown.is_array() ? grown.get_array() : grown.emplace_array())
      .push_back({{"run", name_of_place(run)}, {"date", today()}, {"pieces", pieces}});
  origin[import_record] = json::serialize(record);
}

std::vector<std::string> describe_origin(CheckpointContents const& contents) {
  json::object const record = json_object_in(contents.origin, import_record);
  std::vector<std::string> lines;
  if (record.contains("family")) {
    lines.push_back(fmt::format("a model of the family {} in {}, imported on {}", member_text(record, "family"),
                                member_text(record, "directory"), member_text(record, "date")));
  } else if (!contents.origin.empty() && record.empty()) {
    lines.emplace_back("an import of an earlier version, without a record");
  }
  for (json::object const& file : objects_in(record, "files")) {
    lines.push_back(fmt::format("  {} (sha256 {})", member_text(file, "name"), member_text(file, "sha256")));
  }
  for (json::object const& grown : objects_in(record, "extended")) {
    lines.push_back(fmt::format("vocabulary of {} extended by {} pieces on {}", member_text(grown, "run"),
                                member_text(grown, "pieces"), member_text(grown, "date")));
  }
  return lines;
}

}  // namespace heddle
