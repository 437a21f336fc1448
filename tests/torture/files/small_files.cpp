#include "small_files.hpp"

#include <sentencepiece_trainer.h>

#include <heddle/io/checkpoint/memory_store.hpp>
#include <heddle/io/checkpoint/store.hpp>
#include <heddle/io/dataset/dataset.hpp>

#include "io/checkpoint_fixture.hpp"

namespace heddle {

fs::path small_checkpoint(fs::path const& store, SmallCheckpoint const& options) {
  LocalTensors tensors;
  auto const add = [&](std::string const& name, std::vector<std::int64_t> const& shape) {
    LocalTensors::Parts parts;
    for (auto& part : parts) {
      part.resize(static_cast<std::size_t>(shape[0] * shape[1]));
      for (std::size_t index = 0; index < part.size(); ++index) {
        double const angle = static_cast<double>(index) + 0.1 * static_cast<double>(options.seed);
        part[index] = static_cast<float>(1.5 + std::sin(angle * static_cast<double>(options.step + 1)));
      }
    }
    tensors.add({name, shape, adam_keys}, std::move(parts));
  };
  add("bias", {1, 5});
  add("embedding.weight", {50, 80});
  CheckpointContents contents;
  contents.state.step = options.step;
  contents.state.seed = options.seed;
  contents.state.best_step = options.best;
  contents.config = "[train]\nseed = " + std::to_string(options.seed) + "\n";
  contents.source_model = small_vocabulary();
  contents.target_model = contents.source_model;
  Communicator const self = Communicator::self();
  CheckpointStore disk(store, options.keep);
  if (!options.by_thread) {
    return disk.commit(self, contents, tensors, 1).directory;
  }
  TemporaryDirectory const root;
  MemoryStore memory(self, {.root = root.path(), .run = store, .identity = "0123456789abcdef"});
  return disk.finish(self, disk.begin(self, memory.commit(contents, tensors, 1))).directory;
}

std::vector<fs::path> files_in(fs::path const& directory) {
  std::vector<fs::path> files;
  for (auto const& entry : fs::directory_iterator(directory)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void write_file(fs::path const& path, std::string const& content) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << content;
}

void load_all(fs::path const& checkpoint) {
  Checkpoint const opened = Checkpoint::open(checkpoint);
  for (TensorInfo const& tensor : opened.tensors()) {
    for (std::string const& key : tensor.keys) {
      static_cast<void>(opened.read(tensor.name, key));
    }
  }
}

std::string small_vocabulary() {
  static std::string const model = [] {
    struct Lines : sentencepiece::SentenceIterator {
      bool done() const override { return at == 40; }
      void Next() override { text = "abcdefgh ijkl " + std::to_string(++at * 7919); }
      std::string const& value() const override { return text; }
      sentencepiece::util::Status status() const override { return {}; }
      int at = 0;
      std::string text = "abcdefgh ijkl 0";
    } lines;
    std::string bytes;
    auto const status = sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                                    {"vocab_size", "34"},
                                                                    {"normalization_rule_name", "identity"},
                                                                    {"pad_id", "0"},
                                                                    {"unk_id", "1"},
                                                                    {"bos_id", "2"},
                                                                    {"eos_id", "3"},
                                                                    {"minloglevel", "2"}},
                                                                   &lines, &bytes);
    if (!status.ok()) {
      throw std::runtime_error(status.ToString());
    }
    return bytes;
  }();
  return model;
}

fs::path small_dataset(fs::path const& path, int pairs) {
  Tokenizer const tokenizer = Tokenizer::from_model(small_vocabulary());
  DatasetWriter writer(path, Vocabulary{tokenizer, tokenizer});
  for (int pair = 0; pair < pairs; ++pair) {
    std::vector<std::int32_t> source(static_cast<std::size_t>(pair % 5 + 1));
    for (std::size_t place = 0; place < source.size(); ++place) {
      source[place] = 4 + (pair * 7 + static_cast<int>(place)) % 30;
    }
    std::vector<std::int32_t> const target(source.rbegin(), source.rend());
    writer.add(source, target);
  }
  writer.commit();
  return path;
}

Samples read_samples(fs::path const& path) {
  Dataset const dataset = Dataset::open(path);
  Samples samples{dataset.digest(), {}};
  for (std::int64_t pair = 0; pair < dataset.size(); ++pair) {
    samples.sentences.push_back(dataset.source(pair));
    samples.sentences.push_back(dataset.target(pair));
  }
  return samples;
}

}  // namespace heddle
