#include "tokenizer_steps/piece_decoder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <boost/json.hpp>
#include <heddle/core/base/parse_number.hpp>
#include <heddle/io/text/text.hpp>
#include <numeric>
#include <utility>

#include "tokenizer_steps/json_members.hpp"

namespace heddle {
namespace {

namespace json = boost::json;
using Pieces = std::vector<std::string>;

/// Joins the bytes of neighbours to characters; U+FFFD stands for each byte of a run that is not UTF-8.
void join_bytes(Pieces& pieces) {
  Pieces joined;
  std::string run;
  auto const end_run = [&] {
    if (find_invalid_utf8(run) == std::string::npos) {
      joined.push_back(run);
    } else {
      joined.insert(joined.end(), run.size(), "\ufffd");
    }
    run.clear();
  };
  for (std::string& piece : pieces) {
    if (int const byte = byte_of_piece(piece); byte >= 0) {
      run += static_cast<char>(byte);
      continue;
    }
    if (!run.empty()) {
      end_run();
    }
    joined.push_back(std::move(piece));
  }
  if (!run.empty()) {
    end_run();
  }
  pieces = std::move(joined);
}

/// Removes at most `start` and `stop` times a character from the ends of each piece.
auto strip_decoding(json::object const& options) {
  std::string const content = json_string(options.at("content"));
  if (content.empty()) {  // every piece begins with it again
    refuse_option("decoder", options);
  }
  return [content, start = options.at("start").as_int64(), stop = options.at("stop").as_int64()](Pieces& pieces) {
    for (std::string& piece : pieces) {
      for (std::int64_t count = 0; count < start && piece.starts_with(content); ++count) {
        piece.erase(0, content.size());
      }
      for (std::int64_t count = 0; count < stop && piece.ends_with(content); ++count) {
        piece.erase(piece.size() - content.size());
      }
    }
  };
}

/// The spaces of SentencePiece's pieces, without the one before the first word.
auto metaspace_decoding(json::object const& options) {
  bool const spaces = json_flag(options, "add_prefix_space", true);
  bool const prefix = json_text(options, "prepend_scheme", spaces ? "always" : "never") != "never";
  return [prefix, symbol = json_string(options.at("replacement"))](Pieces& pieces) {
    bool first = true;
    for (std::string& piece : pieces) {
      boost::replace_all(piece, symbol, std::exchange(first, false) && prefix ? "" : " ");
    }
  };
}

/// BERT's: pieces with the prefix continue a word. With `cleanup` there are no spaces before punctuation.
auto word_piece_decoding(json::object const& options) {
  return
      [prefix = json_text(options, "prefix", "##"), cleans_up = json_flag(options, "cleanup", true)](Pieces& pieces) {
        constexpr std::pair<std::string_view, std::string_view> shorter[] = {
            {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
            {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
        bool first = true;
        for (std::string& piece : pieces) {
          if (!std::exchange(first, false)) {
            bool const continues = !prefix.empty() && piece.starts_with(prefix);
            piece = continues ? piece.substr(prefix.size()) : " " + piece;
          }
          for (auto const& [from, to] : shorter) {
            if (cleans_up) {
              boost::replace_all(piece, from, to);
            }
          }
        }
      };
}

}  // namespace

int byte_of_piece(std::string_view piece) {
  bool const is_byte = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
  return is_byte ? parse_number<int>(piece.substr(3, 2), 16).value_or(-1) : -1;
}

PieceDecoder::PieceDecoder(json::value const* options, bool of_bytes) {
  if (of_bytes && (options == nullptr || options->at("type") == "ByteLevel")) {
    steps_.emplace_back(
        [](Pieces& pieces) { pieces = {replace_invalid_utf8(fmt::format("{}", fmt::join(pieces, "")))}; });
  } else if (of_bytes) {
    refuse_option("decoder", *options);
  } else if (options == nullptr) {
    steps_.emplace_back([](Pieces& pieces) { pieces = {fmt::format("{}", fmt::join(pieces, " "))}; });
  } else {
    add(*options);
  }
}

void PieceDecoder::add(json::value const& options) {
  json::object const& given = options.as_object();
  std::string const type = json_string(given.at("type"));
  if (type == "Sequence") {
    for (json::value const& step : given.at("decoders").as_array()) {
      add(step);
    }
  } else if (type == "Metaspace") {
    steps_.emplace_back(metaspace_decoding(given));
  } else if (type == "WordPiece") {
    steps_.emplace_back(word_piece_decoding(given));
  } else if (type == "Replace" && given.at("pattern").as_object().contains("String")) {
    steps_.emplace_back([from = json_string(given.at("pattern").at("String")),
                         to = replacement_text(given.at("content"))](Pieces& pieces) {
      std::ranges::for_each(pieces, [&](std::string& piece) { boost::replace_all(piece, from, to); });
    });
  } else if (type == "ByteFallback") {
    steps_.emplace_back(join_bytes);
  } else if (type == "Fuse") {
    steps_.emplace_back([](Pieces& pieces) { pieces = {fmt::format("{}", fmt::join(pieces, ""))}; });
  } else if (type == "Strip") {
    steps_.emplace_back(strip_decoding(given));
  } else {
    refuse_option("decoder", options);
  }
}

std::string PieceDecoder::operator()(std::vector<std::string> pieces) const {
  auto const bytes = [&] {
    return std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                           [](std::size_t sum, std::string const& piece) { return sum + piece.size(); });
  };
  std::size_t const before = bytes();
  for (Step const& step : steps_) {
    step(pieces);
    require_growth("decoder", before, bytes());
  }
  return fmt::format("{}", fmt::join(pieces, ""));
}

}  // namespace heddle
