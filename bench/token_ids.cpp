#include <boost/json.hpp>
#include <exception>
#include <filesystem>
#include <fstream>
#include <heddle/io/tokenizers/tokenizer.hpp>
#include <heddle/io/vocabularies/vocabulary_files.hpp>
#include <iostream>
#include <iterator>
#include <string>

// bench_token_ids DIRECTORY|MODEL < TEXTS: each line of TEXTS is a JSON string; writes for each a line of JSON, its ids
// and the text that these are decoded to. DIRECTORY is a model of transformers as `heddle import` reads it, MODEL a
// vocabulary of Heddle. For bench/parity/tokenization.py.

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

std::string read_whole(fs::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

heddle::Tokenizer tokenizer_of(fs::path const& path) {
  if (!fs::is_directory(path)) {
    return heddle::Tokenizer::from_model(read_whole(path));
  }
  json::value const config = json::parse(read_whole(path / "config.json"));
  auto const& family = heddle::family_of(config.as_object());
  return heddle::Tokenizer::from_model(heddle::read_vocabulary(family, config.as_object(), path).source_model);
}

int run(char const* path) {
  auto const tokenizer = tokenizer_of(path);
  for (std::string line; std::getline(std::cin, line);) {
    auto const ids = tokenizer.encode(json::value_to<std::string>(json::parse(line)));
    std::cout << json::serialize(json::array{json::array(ids.begin(), ids.end()), tokenizer.decode(ids)}) << '\n';
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: bench_token_ids DIRECTORY|MODEL < TEXTS\n";
    return 64;
  }
  try {
    return run(arguments[1]);
  } catch (std::exception const& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
