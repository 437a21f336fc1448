#!/usr/bin/env bash
# The installed tree is self-contained: moved elsewhere, its program finds its own core library, and a foreign CMake
# project that uses only find_package(heddle) compiles every installed header into a plug-in library.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$HEDDLE_INSTALL" "$work/moved"
"$work/moved/bin/heddle" --help > "$work/help" || { echo "the installed program does not run"; exit 1; }
core=$(ldd "$work/moved/bin/heddle" | awk '$1 ~ /^libheddle_core/ {print $3}')
[ "$(readlink -f "$core")" = "$(readlink -f "$work"/moved/lib*/libheddle_core.so)" ] ||
  { echo "the moved program loads its core library from $core"; exit 1; }
"$work/moved/bin/heddle" kernels > "$work/kernels" || { echo "the moved program does not find its kernels"; exit 1; }

"$work/moved/bin/heddle" new-plugin "$work/plugin" --kind activation > "$work/new"
grep -qx "  cmake -S . -B build -DCMAKE_PREFIX_PATH=$(readlink -f "$work/moved")" "$work/new" ||
  { cat "$work/new"; echo "new-plugin does not print the prefix in which it is installed"; exit 1; }

for file in doc/heddle/README.md doc/heddle/LICENSE doc/heddle/docs/reference/commands.md heddle/train.sbatch heddle/train.pbs \
  heddle/train.lsf heddle/examples/demo.toml; do
  [ -s "$work/moved/share/$file" ] || { echo "share/$file is not installed"; exit 1; }
done

mkdir "$work/stranger"
(cd "$work/moved/include" && find heddle -name '*.hpp' | sort | sed 's/.*/#include <&>/') > "$work/stranger/plugin.cpp"
[ "$(wc -l < "$work/stranger/plugin.cpp")" -ge 10 ] || { echo "too few headers were installed"; exit 1; }
cat >> "$work/stranger/plugin.cpp" << 'EOF'
#if __cplusplus < 202002L
#error heddle::core brings C++20
#endif
extern "C" int execution_spaces() { return heddle::Runtime::execution_space().empty() ? 0 : 1; }
EOF
cat > "$work/stranger/CMakeLists.txt" << 'EOF'
cmake_minimum_required(VERSION 3.22)
project(stranger LANGUAGES CXX)
find_package(heddle REQUIRED)
heddle_add_plugin(stranger plugin.cpp)
target_link_options(stranger PRIVATE -Wl,--no-undefined)
EOF
cmake -S "$work/stranger" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" > "$work/log" ||
  { cat "$work/log"; exit 1; }
! grep -i warning "$work/log" || { echo "find_package(heddle) warns"; exit 1; }
cmake --build "$work/build"
[ -e "$work/build/stranger.so" ]
