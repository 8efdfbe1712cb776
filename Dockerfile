# collopt without a GPU, as a user without rights: docker build -t collopt . && docker run --rm collopt bound dgx-a100 allgather
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir build==1.3.0 && python -m build --wheel --outdir /dist

FROM python:3.13-slim
# Kernels are compiled while the image is built, into a folder that every user of it can read and write, as numba requires.
ENV NUMBA_CACHE_DIR=/var/cache/collopt PYTHONDONTWRITEBYTECODE=1
COPY constraints.txt /tmp/constraints.txt
RUN --mount=from=build,source=/dist,target=/dist \
    pip install --no-cache-dir -c /tmp/constraints.txt "$(echo /dist/*.whl)[plot,report,explore]" \
    && useradd --create-home collopt && install -d -o collopt "$NUMBA_CACHE_DIR"
USER collopt
WORKDIR /home/collopt
RUN collopt doctor --compile && chmod -R a+rwX "$NUMBA_CACHE_DIR"
ENTRYPOINT ["collopt"]
CMD ["--help"]
